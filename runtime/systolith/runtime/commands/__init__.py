"""The commands of `systolith`, a module each, and what they have in common.

- In: arguments of the command line, as click parses them.  Out: text, JSON and files; an exit code.
- From below: `console` (standard output and error), `exits` (exit codes, errors in one line), `options` and
  `chip_options` (options of several commands), `refusals`; then the commands.
- Not here: `run`, `compile` and the like, which `cli` has; the work itself (`jobs`).
"""
