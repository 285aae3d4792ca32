"""The report on a target: how fast each launch could be, what holds it back, and what to run instead.

`public` is `advisor.advise`. `of_target` makes the report of launches whose work is known in closed form, `of_compiled` that of kernels as
compiled. A launch goes
through `drafts` (as it runs), `choice` and `measured_choice` (what should run instead), `doubtful_ceiling` (where that is in doubt),
`launch_facts`, `verdict` and `exports`.
"""

from advisor.advising.of_target import advise_target, launch_reports

__all__ = ["advise_target", "launch_reports"]
