.PHONY: lab test check notebooks stamp clean help

# A thin wrapper: `python tools/run.py COMMAND` does the same without make.
lab test check notebooks clean help:
	@exec sh tools/python.sh tools/run.py $@ $(ARGS)
