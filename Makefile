# make report   a report on the demo model, from nothing
# make test     every test that runs here, from nothing (under 10 minutes on 2 cores)
# make soak     the long torture

VENV = .venv
BIN = $(VENV)/bin
TEXT = When Ms. Dursley saw the cat, the cat saw Ms. Dursley too. The cat sat on the mat, and Ms. Dursley sat

.PHONY: report test soak lint clean

report: $(VENV)/.ready
	$(BIN)/inspector report "$(TEXT)" --model demo --study --out reports/demo
	@echo "Open reports/demo/index.html in a browser."

test: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n 2 --dist loadfile

soak: $(VENV)/.ready-test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m soak

lint: $(VENV)/.ready-test
	$(BIN)/ruff check .

clean:
	rm -rf $(VENV) build *.egg-info

$(VENV)/bin/python:
	python3 -m venv $(VENV)

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test]"
	touch $@
