"""Planted errors in every unit of the core, of one cycle and of one bit: does lockstep notice?"""

from systolith.hw.tb.mutants import Mutant

MUTANTS = (
    Mutant("seq_branch_late", "seq", "PenaltyBits'(BranchPenalty)", "PenaltyBits'(BranchPenalty + 1)"),
    Mutant("seq_bit", "seq_alu", "a_i ^ b_i", "a_i | b_i"),
    Mutant("seq_loop_short", "seq_loops", "left_q[i] > 32'd1", "left_q[i] > 32'd2"),
    Mutant("queue_retires_late", "unit_queue", "TimeBits'(tail_i)", "TimeBits'(tail_i + 1)"),
    Mutant("queue_slot_late", "unit_queue", "count_q < DepthBits'(Depth) || start_o", "count_q < DepthBits'(Depth)"),
    Mutant("token_late", "token_counters", "sum[waits_i[q][k]] == '0", "count_q[waits_i[q][k]] == '0"),
    Mutant("dma_chunk_more", "dma_chunks", "(most > least) ? most : least", "most + ByteBits'(most == least)"),
    Mutant(
        "dma_bit",
        "dma",
        "src_read_o[e] ? src_data_i[e] : fill_q",
        "src_read_o[e] ? src_data_i[e] ^ 32'(e == 5) : fill_q",
    ),
    Mutant("dma_merges_all", "copy_pkg", "pattern.steps[k].address == runs.bytes", "1'b1"),
    Mutant("hbm_credit", "hbm_ctrl", "gained >= Bits'(Need)", "gained > Bits'(Need)"),
    Mutant("hbm_turn", "hbm_ctrl", "st_last_q || !request_i[1]", "1'b1"),
    Mutant(
        "host_bit",
        "host_queues",
        "infeed_out_q[pop_queue] + (32'($countones(pop_i)) << pop_size_i)",
        "infeed_out_q[pop_queue] + 1",
    ),
    Mutant("host_early", "host_queues", "start_i[d] ? start_bytes_i[d] : 32'd0", "32'd0"),
    Mutant("host_no_room", "host_queues", "(d == 1) ? 33'(Room) : 33'd0", "33'd0"),
    Mutant(
        "host_time_late",
        "host_queues",
        "time_at[entry(n, passed_q[n])] == cycle_q + 32'd1",
        "time_at[entry(n, passed_q[n])] == cycle_q",
    ),
    Mutant(
        "host_credit_lost",
        "host_credits",
        "return_i[n] ? returned_i : 32'd0",
        "return_i[n] ? returned_i - 32'd1 : 32'd0",
    ),
    Mutant("host_credit_late", "dma", "done_o && host_q && !out_q", "done_o && host_q && !out_q && !start_i"),
    Mutant("host_held_one_less", "host_credits", "waiting > credits", "waiting > credits + 32'd1"),
    Mutant("host_held_counts_more", "host_credits", "held && count_i", "(held || waiting == credits) && count_i"),
    Mutant("host_link_fast", "dma", "owed - OwedBits'(HostP)", "owed - OwedBits'(HostP + 1)"),
    Mutant("host_setup", "dma", "host_start_o ? HostSetup : 32'd0", "32'd0"),
    Mutant("mxu_bit", "bf16_pkg", "f32_pkg::is_inf(c) && c != product", "1'b0"),
    Mutant("mxu_integer_bit", "mxu_mac", "$signed(x_i[8:0])", "$signed({1'b0, x_i[7:0]})"),
    Mutant("mxu_segment_slow", "mxu_pkg", "even && pattern.steps[Inner].address == '0", "1'b0"),
    Mutant("acc_forgets", "mxu_acc", "write[c] && write_address[c] == read_address[c]", "1'b0"),
    Mutant(
        "vpu_no_stall", "vpu_sequencer", "issue_o ? stall_i : stalled_q - 16'd1", "issue_o ? '0 : stalled_q - 16'd1"
    ),
    Mutant(
        "vpu_body_short", "vpu_sequencer", "place.age + 16'd1 == kernel_i.body", "place.age + 16'd2 == kernel_i.body"
    ),
    Mutant("vpu_bit", "vpu_coordinate", "$signed(at.quotient) < $signed(hi_i)", "1'b1"),
    Mutant("vpu_rounding_bit", "formats_pkg", "image[15] && (image[16] || image[14:0] != '0)", "image[15]"),
    Mutant("trans_bit", "trans_steps_pkg", "32'd127", "32'd126"),
    Mutant("xlu_late", "xlu", "accesses + (Latency - 32'd1)", "accesses + Latency"),
    Mutant(
        "xlu_bit",
        "xlu",
        "reduces_q ? formats_pkg::widen(dtype_q[0], src_data_i[l]) : src_data_i[l]",
        "src_data_i[l] ^ 32'(l == 3)",
    ),
)
