"""HloModuleProto to IR."""
