"""Search that needs few trials, and stops when the ceiling is reached.

`space` says what may be tried and what cannot launch, `prior` what is believed of it and what won for other problems, `surrogate` what is
known of every configuration after each measurement, `contest` tells those near the best apart, `sampler` is an Optuna sampler for anyone's
study, says when enough is enough and cuts measurements short that already lose, `study` runs it all with workers on one storage.
Where latencies come from is an argument (`storage.Backend`).
"""
