"""What was tried for the learned model, kept for whoever would try it again."""

from __future__ import annotations

ATTEMPTS: tuple[tuple[str, str], ...] = (
    (
        "crude baseline: boosted trees on twenty log-ratios, squared error",
        "8.9 % served, models left out in four folds; 12.8 % GPUs left out",
    ),
    ("the served configuration taken as known (block sizes by shape), squared error", "6.3 %; 10.1 %"),
    ("the same, absolute error (the A40 throttles in a fifth of its rows)", "5.9 %; 9.5 %"),
    ("physics alone: seventeen shared constants, no GPU known by name", "9.5 %; 5.6 %"),
    ("physics and forest, smooth cache residency", "6.6 %; 5.2 %"),
    ("residency as a sharp step at the size of the L2, held there by a prior", "3.8 %; 5.2 %"),
    ("L2 rate as a free mixture with 64 B/clk/SM", "3.6 %; 5.3 % (A100 anomalous)"),
    ("L2 rate of sm_80 as a constant fitted to the A100's served launches: 4,809 B/clk, 94 % of the white paper's 5,120", "3.6 %; 4.5 %"),
    ("best of a sweep: physics' fastest winner, own forest / common forest / mean of both", "2.06 / 2.25 / 2.08 %; GPUs 5.7 / 5.1 / 5.3 %"),
    (
        "known configuration: common forest / own forest / mean",
        "default 3.5 / 3.1 / 3.2 %, near-optimal 3.1 / 2.5 / 2.7 %; GPUs 7.7 / 8.2 / 7.8 % and 5.5 / 6.7 / 6.0 %",
    ),
    ("ranking by physics alone", "hit at 1, 8: 8 %, 27 %"),
    (
        "ranking by boosted classifier with hard negatives",
        "72 %, 89 % models left out (nine models to learn from); 41 %, 74 % GPUs left out",
    ),
    ("the same with sixty hard negatives instead of thirty, twice the trees", "74 %, 90 % models left out"),
    ("ranking by a torch network with a listwise loss, two seeds", "69 %, 90 %"),
    ("0.7 classifier + 0.3 network", "73 %, 91 %: not worth a second model"),
    (
        "fp8 gemm: one forest on waves of six tiles / mean of two / mean of three with 2,000 trees",
        "1.04 / 0.98 / 0.89 % on held-out shapes; 1.6 % on held-out (N, K); 15 to 35 % on a GPU left out",
    ),
    (
        "fp8 gemm: a physics of tiles with a dozen shared constants alone / with a forest",
        "2.3 / 0.61 % on held-out shapes; 2.5 / 0.99 % on held-out (N, K); 4 to 9 / 9 to 12 % on a GPU left out",
    ),
    (
        "the same, the forest's correction halved or dropped on GPUs unlike those learned",
        "fp8 6.9 %, fp32 22.9 % on a GPU left out (38.5 % before)",
    ),
    (
        "library kernels on GPUs whose figures lie outside of those learned: the analytical model / the learned one all the same",
        "a GPU left out: fp8 30.2 / 7.5 %, fp32 gemm 35.5 / 28.6 %, rows 27.9 / 15.1 %",
    ),
    (
        "fp8 gemm: DRAM's share free (5.6 was fitted, as if DRAM were as many times faster) / at most 1, and what exceeds the L2 many times "
        "from DRAM",
        "H20, H800 left out 3.9, 10.0 / 5.1, 10.0 %; shapes 0.61 / 0.61 %; but weights streamed at 864 GB/s are no longer "
        "predicted faster than they can be read: the latter used",
    ),
    (
        "library kernels beyond the sizes learned (all above or below the median left out), 2 to 8 and 8 to 64 times: learned / analytical",
        "fp8 below 5.2, 5.3 / 57, 58 %, above 18, 14 / 9, 6 %; fp32 gemm 17 to 31 / 28 to 39 %; rows above 11, 13 / 19, 17 %: learned, "
        "fading as the fused MoE's",
    ),
    (
        "ranking with registers, spills, occupancy and the hot loop's instructions of the compiled kernel added",
        "75 / 92 % instead of 76 / 90 % (two folds of models); 42 / 73 % instead of 48 / 75 % GPUs left out: not used",
    ),
    ("ranking with the winners of the nearest problems as features", "72 / 90 %; as a ranking of their own 64 / 85 %: not used"),
    (
        "the first eight picks re-weighted by the problems where earlier picks lose (`diversity.py`): used",
        "first 5, first 8: 88.3, 91.2 % instead of 86.6, 89.9 %; GPUs left out 66.3, 73.6 % instead of 66.4, 73.4 %",
    ),
    ("fewer, smaller trees for ranking GPUs left out", "41 / 69 %"),
    ("summed scores of two or three of these rankers", "76 / 92 %, within the noise of the folds"),
    (
        "launch overhead partly in clocks; split L2s (sm_80, sm_90) with a threshold of their own; the others' step at 1.02 of the L2 and "
        "steeper; tensor share of Ampere apart",
        "best 2.08 -> 1.66 %, GPUs 5.2 -> 3.5 %; known 2.9 -> 2.6 %, GPUs 6.9 -> 5.3 %",
    ),
    (
        "cost of a small tile in clocks instead of a share of the tensor time",
        "served, H20 left out 12.6 -> 5.2 %; AUC of the L40 0.91 -> 0.93",
    ),
    ("shared-memory share of Hopper apart", "H800 left out 5.5 -> 4.8 % (best), but H20 15.5 % and A100 9.4 % as served: not used"),
    ("DRAM in a soft maximum of its own with the rest", "nothing gained: not used"),
    (
        "factors of single GPUs from their launches as served (`gpu_corrections.py`)",
        "a GPU's sweeps left out, its served launches known: best 3.3 -> 2.5 %, known 5.1 -> 3.8 %",
    ),
    (
        "the same with a GPU left out wholly: taken to be like the mean of all GPUs / of those with sweeps",
        "best 3.6 / 2.7 %, known 5.3 / 4.7 % (3.4 and 5.4 % without such factors)",
    ),
    ("the same from launches of at most 256 tokens", "sweeps left out 2.6 and 4.0 %: not used"),
    ("errors on unseen GPUs as sqrt(expected size^2 + 3 %^2)", "coverage per GPU 16 to 99 % instead of 44 to 100 %: not used"),
    (
        "a search that only lost so far: by the losses / by the order / every third by the losses",
        "mean trials on the A100 left out 18 / 14 / 15, on the A40 4.6 / 5.3 / 4.4: the last used (until the order itself moved on, below)",
    ),
    ("forests of sweeps that no served launch is in", "best 1.66 -> 1.58 %, GPUs 3.5 -> 3.5 %; known 2.6 -> 2.3 %, GPUs 5.3 -> 5.3 %"),
    ("a share of a set larger than the L2 kept, falling with its size", "AUC of the L40 left out 0.87 -> 0.91 by the ratio alone"),
    ("400 trees with a third of the features instead of 180 with half", "served 3.48 -> 3.36 %"),
    ("expected error sizes: distance to the nearest model learned as a feature", "coverage and widths unchanged: not used"),
    ("quantiles averaged with those of the typical group", "80 % intervals of models left out: 80 to 82 % instead of 82 to 84 %"),
    (
        "physics of the order: two dozen constants that all GPUs share, fitted to what wins sweeps instead of to latencies",
        "40, 82 % models left out; 38, 78 % GPUs left out",
    ),
    (
        "the same with pipeline ramps, an L2 port per SM, concurrency, waves of DRAM traffic, barriers per warp",
        "37 to 39, 74 to 77 % GPUs left out: not used",
    ),
    ("as a feature of the trees", "73, 92 % models left out; 44, 78 % GPUs left out: not used"),
    (
        "its log-odds beside those of the trees, GPUs left out: 0, 0.5, 0.7 and 1 of them",
        "44, 73 / 50, 78 / 49, 78 / 49, 79 %: 0.7 used, on GPUs without sweeps alone (models left out 68 to 71, 88 to 89 % with it)",
    ),
    ("ranking one GPU by the sweeps of one other", "9 to 60, 27 to 86 %; the A100 is like none of the others: 10 to 25, 44 to 61 %"),
    (
        "no two GPUs with sweeps left out of the intervals' folds together",
        "GPUs left out: recall .82 -> .87, calibration error .042 -> .035",
    ),
    (
        "quantiles for GPUs left out: averaged with the typical GPU's / pooled / pooled with each GPU's level widened",
        "best held by 73 / 77 / 80 %, recall .87 / .87 / .81: pooled",
    ),
    ("the winner that the best of a sweep starts from chosen by the physics of the order", "best 1.64 %, GPUs 3.06 %: not used"),
    (
        "ranking with problems left out at random, neighbouring token counts of the same model known",
        "83 / 96 %: about what this ranker could reach on models left out if it knew everything about them",
    ),
    (
        "ranking GPUs left out without the GPU's own figures; four seeds averaged",
        "45 / 72 %; 45 / 73 %; single seeds differ by 8 points at the first pick of one GPU",
    ),
    (
        "LambdaMART (LightGBM) instead of the classifier, fitted to 120 others of each problem: any / any and hard ones",
        "first 1, 3, 8: 74, 88, 93 / 77, 86, 93 % instead of 74, 84, 90 %; GPUs left out, no physics: 48, 63, 76 / 42, 61, 74 % instead of "
        "44, 57, 75 %",
    ),
    (
        "both beside the classifier on GPUs with sweeps, the first alone beside it and the physics on others: used",
        "77, 87, 93 %; GPUs left out 51, 67, 79 %",
    ),
    (
        "LambdaMART with eight leaves, larger leaves, other truncations, without normalisation; xendcg; XGBoost's",
        "within 2 points of it, but xendcg 60, 84 %",
    ),
    (
        "physics of the order with the compiled kernel's registers, its instructions per trip, an issue pipeline",
        "37 to 39, 78 to 80 % GPUs left out instead of 38, 80 %: not used",
    ),
    (
        "physics of the order with constants of its own for each GPU, and a new GPU's drawn from theirs: mean over the draws",
        "51, 79 % instead of 50, 79 % GPUs left out: not used",
    ),
    (
        "a search that learns such leanings of a GPU from what its trials won and lost, a table at a time",
        "90th percentile A100 18, A40 6, H800 28, L40 26 to 61 trials, instead of 21, 7, 22, more than 60: not used",
    ),
    (
        "scores averaged with those of neighbouring token counts (a factor of 1.15 / 1.3 / 1.6 apart)",
        "75, 93 / 74, 92 / 71, 89 %; GPUs left out 53, 79 / 53, 79 / 52, 77 %: not used",
    ),
    (
        "GPUs left out: LambdaMART alone / with one of another seed / with one that does not know the GPU's figures / with both: used",
        "first 1, 8: 51.5, 79.4 / 52.0, 80.1 / 51.4, 80.2 / 51.9, 80.8 %",
    ),
    (
        "24 picks re-weighted so instead of eight, after eight ever more against the odds: used",
        "90th percentile of trials in that order, GPUs left out: A100 20 -> 20.5, A40 7.5 -> 7.5, H800 26 -> 23, L40 48 -> 24.5; models left "
        "out 6 / 4 / 3 / 12.5 -> 6 / 4 / 3 / 10.5",
    ),
    (
        "with that order, a search that only lost so far: every third by the losses / by the order: used",
        "90th percentile A100 22.5 / 20.5, A40 5 / 7.5, H800 28 / 23, L40 28.5 / 24.5",
    ),
    (
        "what a measured launch says of the best of its space; GPUs left out, share of its error 0 / 0.3 / 0.5 of what the "
        "nearness of blocks leaves",
        "AUC .979 / .983 / .984, L40 .931 / .948 / .954, recall .87 / .85 / .84",
    ),
    (
        "its share by least squares over all GPUs left out / and halfway to that of known GPUs / the same, a vote for each GPU and one for "
        "nothing: used",
        "AUC .983 / .984 / .983, L40 .950 / .955 / .947, recall .81 / .84 / .85, calibration error .041 / .045 / .040",
    ),
    ("nearness by all of the time of each pipeline instead of the blocks'", "AUC .968, L40 .89: not used"),
    ("errors of launch and best taken as alike where no latency was measured", "AUC .806 -> .808: not used"),
    (
        "LambdaMART with three grades: recorded within 1 %, predicted within 3 / 10 % of the best, the rest (one forest, models left out)",
        "73, 91 / 74, 93 % instead of 72, 93 %: not used",
    ),
    (
        "expected error sizes on GPUs left out learned from errors on GPUs left out instead of models left out",
        "served, known, best held by 85, 88, 85 % (per GPU 53 to 99) instead of 80, 81, 77 % (54 to 99): not used",
    ),
    (
        "a search's measurements compared with their place in the order / with the predicted latency: used (simulated sweeps, what runs today "
        "measured first)",
        "90th percentile of trials, L40 left out: more than 60 / 27; the order alone 24.5",
    ),
    (
        "a table at a time, what won at neighbouring token counts as much before its place in the order as there: used",
        "simulated sweeps of GPUs left out: first 63 -> 69 %, one of the first 8 89 -> 91 %, 90th percentile 10 -> 8 trials",
    ),
    (
        "tiles below 64 rows on Hopper with one buffer less, as Triton has them: used",
        "GPUs left out: known 4.70 -> 4.37, best 2.71 -> 2.67 %, recall .854 -> .871, precision .962 -> .938, best held by 77 -> 82, known "
        "81 -> 86 %; models left out: served 3.44 -> 3.39 %, ranking 76.4, 93.6 -> 76.7, 93.4 %",
    ),
    (
        "GPUs left out, after that: share of the physics .7 / .85 / 1 / 1.5 (no variety)",
        "first 1, 8: 49.1, 79.2 / 50.5, 79.3 / 50.5, 79.9 / 48.3, 80.0 %; the A100 alone 24 / 32 / 34 / 37 % at the first pick, the L40 52 / "
        "50 / 48 / 35 %",
    ),
    ("the same with two / four forests in `first_unseen` and .85 of the physics: used", "first 1, 8: 49.1, 80.4 / 50.9, 80.4 %"),
    (
        "ranking with what a configuration needs over the least that any rival needs, with its place among them, and with what it has under "
        "way at a time: used",
        "first 1, 8: models left out 76.7, 93.4 -> 78.0, 94.2 %; GPUs left out 50.9, 80.4 -> 53.2, 80.7 %, the A100 alone 32.9, 75.9 -> "
        "42.1, 78.2 %; 90th percentile of trials, models left out 7.5 / 2.5 / 2.5 / 10 -> 7 / 2.5 / 2 / 7, GPUs left out A100 23.5 -> 22.5, "
        "A40 7.5 -> 12.5, H800 23 -> 22, L40 23 -> 49.5 (a table at a time 20.5, 6.5, 18, 23.5 -> 18.5, 9.5, 17.5, 26.5)",
    ),
    ("the same in all / in half of the forests of `first_unseen`: used", "GPUs left out 53.9, 80.3 / 53.2, 80.7 %"),
    (
        "the same, two / three forests of each of the three kinds (two folds of models, no variety)",
        "first 1, 8: 73.4, 91.2 / 74.1, 90.5 / 74.8, 90.5 %: not used",
    ),
    (
        "how far the sweeps agree with themselves: a launch identical to the best is within 1 % of it (`tests/bench/identical_launches.py`)",
        "A100 72, A40 97, H800 71, L40 82 %; 73 % of those up to 200 us, 94 % of longer ones: about what any first pick could reach",
    ),
    (
        "configurations that make one launch (GROUP_SIZE_M at or above the number of row tiles) picked once: used",
        "90th percentile of trials, GPUs left out: A100 22.5 -> 21, A40 12.5 -> 12, H800 22 -> 18.5, L40 49.5 -> 42.5; models left out: "
        "first 5 90.5 -> 91.3 %",
    ),
    (
        "that, and on GPUs without sweeps what resembles an earlier pick moved down: by 2 / by 1: used",
        "first 8 81.9 / 81.4 instead of 81.0 %; 90th percentile A100 22.5 / 20, A40 8 / 9.5, H800 21 / 19, L40 49.5 / 37",
    ),
    (
        "configurations that never won scored by the same forests on GPUs without sweeps, less 0 / 1.5 / 3",
        "first 8 71.4 / 78.1 / 80.1 instead of 80.8 %; 90th percentile of the L40 91 / 64.5 / 42.5 instead of 49.5: not used",
    ),
    (
        "the likeliest of them at every fourth place from the ninth / the twelfth on",
        "90th percentile A100 25.5 / 24.5, A40 10.5 / 9.5, H800 22 / 22, L40 30 / 29: not used",
    ),
    ("six of them after the varied picks: used", "90th percentile A100 20, A40 9.5, H800 19, L40 37 -> 28; a table at a time L40 20 -> 16"),
    (
        "GPUs left out, in those places: .4 / 1.5 / 2.5 of the physics instead of .85",
        "90th percentile A100 23.5 / 20 / 18, A40 7 / 11 / 14, H800 14 / 23.5 / 34.5, L40 28 / 28 / 32.5: no one share suits all",
    ),
    (
        "after three picks the trees alone and with the physics in turn: used",
        "first 5, first 8, first 20: 77.2, 83.4, 91.7 instead of 76.7, 81.4, 90.0 %; 90th percentile A100 20 -> 17, A40 9.5 -> 6, "
        "H800 19 -> 12, L40 28 -> 37, all 20 -> 14",
    ),
    (
        "the same, but .2 or .4 of the physics in place of none, or 2.5 or 6 in place of .85, or after one, five or eight picks",
        "first 8 81.1 to 83.2 %: not used",
    ),
    (
        "a search told what won for other problems on its GPU, its order trusted as far as it was right there (`precedents.py`): used",
        "90th percentile of trials, GPUs left out, a table at a time: A100 16.5 -> 13.5, A40 4.5 -> 5.5, H800 8 -> 10, L40 22.5 -> 20.5; "
        "all tables of a GPU in turn 8, 4, 6, 15; simulated 18.5, 4.5, 7, 18.5 -> 11, 4.5, 8.5, 19 and 8, 4, 7, 13.5",
    ),
    (
        "the same with one weight of the order for all (1.5 / 3), all tables in turn",
        "first 1, first 8: GPUs left out 66, 90 / 58, 88 %, models left out 76, 95 / 79, 95 %; by how right it was 65, 90 and 80, 95 %",
    ),
    ("the same told as well what lost for other problems (weight 0.3 to 2)", "first 8 90 % as without: not used"),
    (
        "the winners of production tables for the same GPU (Hopper's for the H800, the L40S's for the L40) beside the order as precedents",
        "first 1, 3, 8: A100 42, 70, 80 -> 38, 65, 80 %, H800 48, 62, 88 -> 46, 77, 86 %, L40 51, 59, 76 -> 55, 59, 74 %: not used",
    ),
    (
        "the forests of the order fitted to the winners of 2,018 entries of production tables as well (weight 0.3; the GPU's own among them)",
        "GPUs left out, first 1, 3, 8: A100 36, 76, 87, A40 74, 82, 92, H800 48, 73, 88, L40 24, 49, 78, all 45, 70, 86 instead of 53, 69, "
        "83 %; 90th percentile A100 17 -> 11.5, H800 12 -> 15: not used",
    ),
    (
        "the same without tables of the GPU and its siblings (all tables, weight 1 / those whose model is certain, weight 0.1)",
        "GPUs left out, first 1, 8: 43, 81 / 50, 85 %; 90th percentile A100 19 / 17, A40 10 / 6, H800 25 / 16, L40 28 / 34: not used",
    ),
    (
        "picks of that order and of the one without tables in turn, after three of the latter",
        "all: first 5, first 8 78.7, 85.4 instead of 77.2, 83.4 %, 90th percentile of trials 13.7 instead of 14 (A100 13.5, H800 11, L40 42): "
        "not used, it would need the tables to train with",
    ),
    (
        "GPUs with sweeps, models left out: log-odds less 20 / 30 times the log of the latency predicted; those in turn with the odds "
        "alone, 20 / 30 / 40 times, after three picks; 20 / 30 / 40 times, after five",
        "first 1, 8, 20: 76.9, 94.6, 96.8 / 76.4, 93.1, 96.8; 78.0, 94.8, 97.3 / 78.0, 94.6, 97.3 / 78.0, 94.3, 97.2; 78.0, 95.1, 97.3 / "
        "78.0, 95.3, 97.3 / 78.0, 94.9, 97.2 instead of 78.0, 94.2, 96.4 %: 30 times in turn after five used",
    ),
    (
        "the same in turn with the physics, with each forest alone, with the forests of unseen GPUs",
        "first 8 94.1, 93.3 to 94.7, 94.6 %: not used",
    ),
    (
        "predicted latencies as a third opinion, or in the place of the second, on GPUs left out",
        "first 8 81.3 to 83.8 instead of 83.4 %, first 20 89 to 92 instead of 91.7 %: not used",
    ),
    (
        "intervals on GPUs that were seen by quantiles of each GPU (Mondrian) / halfway to those of all: the former used",
        "models left out: served, known, best held by 81, 82, 80 / 83, 82, 81 % instead of 83, 81, 82 %; served, per GPU, 76 to 87 instead of "
        "67 to 92 %, known 81 to 83 instead of 77 to 88 %",
    ),
    (
        "intervals on GPUs left out by quantiles averaged with those of the typical GPU / those alone",
        "served, known, best held by 78, 85, 76 / 70, 81, 72 % instead of 81, 86, 82 %: not used",
    ),
    (
        "beyond what was learned: the model, extrapolating / the analytical model (`tests/bench/extrapolation.py`), as served, trained on "
        "M topk up to 4,096 alone: two to four, four to eight, 8 to 64 times that",
        "5.3, 7.2, 10.0 / 27, 29, 28 %: the former used",
    ),
    ("the same, trained on N up to 768, N from 2,048 on, E up to 32: two to four times beyond", "4.8, 6.3, 4.3 / 16, 26, 18 %"),
    (
        "fp8 gemm on a GPU with the SMs of one learned and another memory (H200 for the H800): the forest asked with its own figures / with "
        "those of the learned one, the physics alone carrying the rest",
        "large products 4 to 13 % / 5 % faster than on the H800: the "
        "latter used (no measurement of it is public here; fused MoE as served, bound by compute: 2 to 4 %)",
    ),
    (
        "fp32 gemm: what the board's power sustains as a term of the physics (it had been a thousand times too high to count) / besides, "
        "cuBLAS's smaller tiles for single products only, batches with the largest / besides, at most 5 us of launch: the latter used (a "
        "third of the trees)",
        "GPUs left out 25.7 -> 20.7 / 18.9 / 19.2 % (A100 15 -> 11, T4 36 -> 25, V100 30 -> 18, P4 17 -> 15, P100 28 -> 24), shapes "
        "6.3 -> 6.1 %",
    ),
    (
        "the analytical model with the power that boards sustain, and with pairs of CTAs on sm_100 that hold half an operand each, against "
        "published torch.mm of 20 GPUs (`tests/training/test_published_products.py`, 2,048 and larger)",
        "bf16 13.4 -> 7.4, fp16 14.0 -> 6.2, tf32 16.2 -> 7.1, fp32 (learned) 17.6 -> 8.9 %",
    ),
    (
        "fp8 gemm with that power term: what an H200 does for large products beside an H800, where torch.mm of bf16 has them alike (790 "
        "and 797 TFLOP/s)",
        "5 -> 0.4 % faster; H20, H800 left out 5.1, 10.0 -> 5.4, 8.5 %",
    ),
    (
        "the analytical model with sets beyond the L2 missing it as the learned model has it, instead of what exceeds it alone",
        "near-optimal configurations: A100 10.4 -> 5.0, A40 6.8 -> 3.4, H800 4.4 -> 1.3, L40 14.4 -> 3.8 %; as served, eleven GPUs 7 to 19 "
        "-> 4 to 16 %",
    ),
    (
        "fp32 gemm: K padded to the 8 and rows to the 64 that its kernels load, instead of 128 / besides, K split where tiles are few: used / "
        "besides, the geometric mean with the analytical model (a third of the trees)",
        "GPUs left out 19.2 -> 14.1 / 14.0 / 15.7 % (V100 18 -> 11, T4 25 -> 16, A100 11 -> 9, P100 24 -> 18); shapes 6.1 -> 6.1 %",
    ),
    (
        "on GPUs unlike those learned, the forest's correction: none / the share that serves GPUs left out of training best / all",
        "fp32 gemm 14.1 / 17.3 (V100 11 / 40) / 18.7 %, rows 5.5 / 5.8 / 6.0 %, fp8 7.0 / 7.0 / 11.1 %: none used",
    ),
    ("the same with at most 12 / 30 us of launch, as much as PyTorch takes between two operators", "13.8 / 13.9 %: not used"),
    (
        "operators over rows: what DRAM was published to sustain (`pipelines/dram.py`) instead of what its pins carry / besides, an overhead "
        "and a ratio to DRAM's time of each operator as what the forest corrects: used / besides, a term of rows or of bytes per SM",
        "GPUs left out 14.8 -> 8.8 / 5.5 / 5.9 to 6.6 %, shapes 2.8 -> 2.7 / 2.3 %",
    ),
    (
        "the analytical model with that and with the turns that reads and writes take, sums of two tensors (A100, P100, P4, T4, V100)",
        "12.6, 22, 20, 20, 6 -> 7, 3, 3, 1, 3 %; fused MoE as served on the H200 9.2 -> 8.0 %, elsewhere 0.1 % better",
    ),
    (
        "the analytical model of fp8 gemm on sm_100 with tiles that pairs of CTAs share and with rows of 128 bytes",
        "published cuBLASLt products of a GB200 from 4,096 on 29 to 44 % too slow -> 5 to 11 % too fast",
    ),
    (
        "GPUs left out: configurations with one buffer picked in turn where the set is .9 to 3 times the L2 and experts have at most 32 rows "
        "(`tests/bench/one_buffer.py`; the range was read off all four GPUs): used",
        "first 3, 8, 20: 68.6, 83.4, 91.7 -> 70.0, 84.1, 93.3 %; 90th percentile of the place of the first good one: A100 17 -> 19.5, A40 6 "
        "-> 6, H800 12 -> 9, L40 37 -> 15.5, all 14 -> 13",
    ),
    ("the same up to 2.4 / 6 times the L2", "first 3, 8, 20: 69.6, 84.0, 93.2 / 70.9, 84.0, 93.4 %; 90th percentiles the same"),
    (
        "one buffer of such sets as a feature of the trees and a leaning of the physics instead",
        "GPUs left out, first 1, 8: 52.8, 84.0 %; "
        "90th percentile A100 19.5, A40 5.5, H800 9.5, L40 32; models left out, first 1, 8: 79.1, 94.4 -> 78.2, 94.9 %: not used",
    ),
    (
        "sets beyond the L2 missing it gradually, as copies do on A40 and L40 (github.com/te42kyfo/gpu-benches), instead of at once",
        "fused MoE of 1.2 to 1.6 times the L2 on L40 and RTX PRO 6000 S: 5 to 11 % off -> 18 to 95 %: not used",
    ),
    (
        "physics of four fits averaged instead of one",
        "GPUs left out, served, known, best 5.34, 2.59, 2.71 -> 5.26, 2.44, 2.69 % (physics and forest alone, near-optimal rows thinned)",
    ),
    (
        "besides, the tensor pipeline no faster than the board's power allows, padding included, and the share of the boost clock that wgmma "
        "reaches held",
        "5.26, 2.44, 2.69 -> 5.10, 2.40, 2.58 % (RTX 6000 Ada as served 9.8 -> 9.2, by the physics from 256 rows an "
        "expert on 24 -> 14 % too fast; L40 5.0 -> 4.4, L20 5.0 -> 4.6, RTX PRO 6000 S 3.8 -> 3.3 %); that share not held: H20 4.7 -> 7.3 %",
    ),
    (
        "both in the whole model, GPUs left out / models left out",
        "known 4.37 -> 4.28, best 2.67 -> 2.59 %, AUC .984 -> .987, but recall "
        ".87 -> .81 (L40 .88 -> .72), best held by 82 -> 74, known by 86 -> 90 % / known 2.33 -> 2.25, best 1.52 -> 1.48 %, first 1, 8: 78.0, "
        "95.3 -> 78.9, 94.4 %, best held by 80 -> 77 %: not used",
    ),
    (
        "the same without padding / as a term of its own / as a floor of the whole launch",
        "RTX 6000 Ada 8.0, but H20 7.8 and A40's best 3.0 / A100's best 5.5 / RTX 6000 Ada 9.3, A40's best 3.1 %: not used",
    ),
    (
        "the H200's L2 as fast as the H100's, whose die it shares (launches bound by it were 0 to 4 % faster, where published figures say 17)",
        "GPUs left out: H200 4.1 -> 3.9, H800's known 2.7 -> 2.4, but A100 5.5 -> 6.1, its best 3.8 -> 4.3 %: not used",
    ),
    (
        "a share of DRAM of its own where ECC takes from its bandwidth (.96 fitted)",
        "GPUs left out: RTX 6000 Ada 9.2 -> 7.8, L40 4.4 -> "
        "3.9, but RTX PRO 6000 S 3.3 -> 4.2, A100's best 3.8 -> 5.1 %, all 5.01, 2.32, 2.89 %: not used",
    ),
    ("published sustained DRAM bandwidth instead of a shared share (H200 .92)", "GPUs left out: H200 3.6 -> 4.8 %: not used"),
    (
        "a search takes the token counts of a table from the largest / from the middle / by bisection instead of in their order",
        "90th percentile of trials, GPUs left out, a table at a time: A100 14 -> 20 / 14 / 15, L40 15.5 -> 13 / 14 / 14; all tables in turn "
        "A100 8 -> 9, L40 10.5 -> 11 to 12: not used",
    ),
    (
        "GPUs left out: no more stages first than sweeps of GPUs with as much shared memory tried (4 where an SM has 100 KiB): used / "
        "besides, all that fits the order fitted without the others there",
        "L40, first 3, 8, 20: 59.3, 75.5, 91.7 -> 60.6, 77.8, 92.1 / 63.9, 80.1, 93.1 %, but A100, first 3: 69.0 -> 62.0, H800, "
        "first 5: 80.1 -> 70.4 %: not used",
    ),
    (
        "where the L2 is one piece, among configurations with one buffer alone at first (9 of 10 near-optimal ones of such sets have one "
        "on A40 and L40): 4 / 6 / 8 / 12 picks: 8 used",
        "L40, first 8: 77.8 -> 81.5 / 82.4 / 84.7 / 84.7 %; A40 91.7 -> 92.1 %",
    ),
    (
        "besides, what resembles a pick moved down by 3 / 6 / 10 within .6 of the distance instead of by 1 within all of it",
        "GPUs left out, first 8: 86.5 -> 87.6 / 88.7 / 86.2 %; by 3 within .3 / .45 / .7: 85.1 / 87.3 / 88.1 %; by 4 within 1: 87.0 %",
    ),
    (
        "by 5 within .65, and two opinions that see what each other picked: used",
        "GPUs left out, first 3, 8, 20: 70.3, 86.5, 93.4 -> 72.3, "
        "89.0, 93.4 %; 90th percentile of the place of the first good one: A100 19.5 -> 18, A40 5 -> 5, H800 9 -> 8, L40 15 -> 12, all 12 "
        "-> 9.7",
    ),
    (
        "the same on GPUs with sweeps: opinions that see each other's picks / besides, what resembles one moved down by .3 / 1 / 4",
        "two folds of models, first 8: 94.9 -> 94.2 / 94.0 / 93.8 / 92.4 %: not used",
    ),
    (
        "besides, on GPUs left out: a third opinion with 1.7 / 2.5 / 4 times the physics, with the predicted latencies; values shared with "
        "earlier picks counted",
        "first 8 88.8 / 88.8 / 88.1, 89.0; 88.1 instead of 89.0 %: not used",
    ),
    ("GPUs likened by twice their shared memory and less by wgmma", "GPUs left out, first 8: 86.9 instead of 86.5 %: not used"),
    (
        "intervals of GPUs left out from folds of one GPU each instead of two",
        "known held: A100 88, A40 98, H800 80, L40 87 instead of 87, "
        "98, 80, 80 %; best 73, 96, 74, 89 instead of 69, 96, 75, 89 %: not used",
    ),
    (
        "a search that is told by neighbouring sizes how far similar configurations were off / by what won there alone: used",
        "GPUs left out, a table at a time, 90th percentile A100 10 / 9, A40 4 / 4.5, H800 9.5 / 7, L40 10 / 9.5; simulated sweeps, its own "
        "similar ones heard / not heard either: used, 11.5 / 9, 3 / 4.5, 8 / 7.5, 11 / 9.5",
    ),
    (
        "of precedents: the weight of none 2 instead of 1: used / the least share .006 / .02 / likeness over .15 / .4",
        "a table at a time A100 9 -> 8 / 8 / 11 / 11 / 11, A40 4.5 -> 4.5 / 4.5 / 5 / 5 / 4, H800 7 -> 7 / 6.5 / 6.5 / 6 / 9, L40 9.5 -> 9.5 "
        "/ 9.5 / 9 / 9.5 / 10",
    ),
    (
        "launches that share a configuration: their orders' scores averaged / their log-odds, and the picks made of those: used",
        "w13 and w2 of five models together predicted to be behind the fastest of the space by: H200 3.2 / 3.0, L40 2.4 / 2.3 %",
    ),
    (
        "an order that had measured all repeats of every launch but one, and is judged on that (`tests/bench/identical_launches.py`)",
        "first 1: A100 52, A40 98, H800 76, L40 87, all 77 % of the 67 sweeps whose best was measured three times or more: the noise of "
        "single measurements alone keeps a first pick from 85 %",
    ),
    (
        "GPUs with sweeps, before the varied picks: winners count by how far within 1 % they are (1.7 to 0.3) in the classifier / have two "
        "grades in LambdaMART / both",
        "first 1 78.0 -> 79.4 / 78.5 / 79.0 %, first 8 of the former 93.2 -> 93.5 %; the former with two other "
        "draws of rows and seeds 78.5 -> 78.2, 78.0 -> 78.4 %: noise, not used",
    ),
    (
        "the same three forests of three draws of rows and seeds averaged, as they are / with winners that count by how far within 1 % they "
        "are",
        "first 1 78.5 / 78.7 % where single draws have 78.0, 78.5, 78.0 / 79.4, 78.2, 78.4 %: the scatter is not of the forests",
    ),
    (
        "the classifier fitted to odds that others, fitted without the problem, give its configurations, .7 / .4 of them beside what won / "
        "its winners counting by those odds (two folds of models)",
        "first 1, beside both LambdaMARTs 76.2 / 76.4 / 79.2 instead of 79.6 % with the margin alone: not used",
    ),
    (
        "CatBoost's QuerySoftMax on the same rows, alone / beside the three forests (one fold of models)",
        "first 1 68.1 / 70.8 instead of 70.8 %: not used",
    ),
    (
        "intervals on GPUs left out by the errors of GPUs of the same compute capability alone / halfway to those of all / of the median GPU",
        "served held on A100 91, A40 52, H800 99, L40 78 / 91, 69, 99, 72 / 72, 56, 99, 51 instead of 91, 74, 100, 58 %; of sweeps no other "
        "GPU has the same, and by the median GPU known held by 85, 91, 81, 64 instead of 87, 98, 80, 80 %: not used. Three swept GPUs "
        "vouch, with no more assumed than that they are alike, for at most 75 % on a fourth (Lee, Barber and Willett, arXiv 2306.06342)",
    ),
)
"""What was tried, in order, and what it gave (fused MoE, MAPE unless said otherwise)."""
