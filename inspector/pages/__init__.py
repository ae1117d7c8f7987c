"""What a person sees: figures, report pages.

`report.py` gathers and writes; `index.py` and `layer.py` make the two kinds of page, on what `html.py` gives them;
`figures.py`, `score_figures.py` and `layer_figures.py` make the files for papers and talks, `painting.py` those that share
most of what they show, fast. Below them: `tables.py` (tensors to tables), `words.py` (numbers to sentences), `cells.py`
(grids to pictures), `palette.py` (the one colour ramp), `presets.py` (texts worth looking at).
All but the writing are pure functions of tensors and DataFrames: they also work on attention made elsewhere.
"""
