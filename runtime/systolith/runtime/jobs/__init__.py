"""Jobs of commands: read, compile, simulate, check, compare, write.

- In: a request, which has the files and options of a command.  Out: an outcome: results, differences, a record.
- From below: `feed_files`, `decisions`, `compare`, `checks`, `what_if`, `pass_check`; `job` (`systolith run`) and
  `lockstep`.
- Not here: options and printing (`commands`); the record itself (`records`).
"""
