"""Agreement with the published: what others measured on GPT-2's heads, beside what this package measures.

`data.py` reads the numbers and statements that lie here with their sources, `readings.py` measures the same things on a
model, and `table.py` sets them side by side as `check --against published`.

    gpt2.json, distilgpt2.json, gpt2-xl.json    whole arrays, [layer][head] mostly, of published runs
    demo.json                                   the demo model read by TransformerLens (scripts/golden_transformerlens.py)
    statements.csv                              single statements on heads: release, layer, head, role, claim, value, measure
    measures.csv                                what a statement's number means, who published it, where, and how it compares

`compare` in measures.csv: "exact" (reproducible: a bound, can fail), "band" (an unseeded run, or one known to few digits),
"rank" (among the highest so many), "below 0", "shown" (ours stands beside a claim with no number that compares), "not
measured" (with the reason why). Sources that disagree both stand. The numbers are facts of their sources, checked by nobody
here.
"""
