"""Mutation tests of the storage: small errors are planted, and the tests must notice them.

::

    operators.py     which errors can be planted in a source file            (pure)
    recording.py     a plugin of pytest: which test runs which lines, and how long it takes
    tree.py          a throw-away copy of the project; the working tree is never changed
    worker.py        plants one error in a process that has imported everything already
    run.py           chooses the tests of each mutant, runs the workers
    report.py        killed of planted, those that live, and known equivalents (pure)
    equivalents.txt  mutants that change nothing that anybody can see, each with its reason
"""
