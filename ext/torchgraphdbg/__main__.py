"""python -m torchgraphdbg: see --help."""
if __name__ == "__main__":
    from torchgraphdbg._command import main

    main()  # `run` gives this module to the script: nothing of it may be used afterwards
