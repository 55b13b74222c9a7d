# A thin wrapper: `python tools/run.py COMMAND` does the same without make.
.PHONY: help environment lab test test-all check notebooks translations site clean-notebooks stamp clean

help environment lab test test-all check notebooks translations site clean-notebooks clean:
	@exec sh tools/python.sh tools/run.py $@ $(ARGS)

stamp:
	@exec sh tools/python.sh tools/stamp.py $(REPO)
