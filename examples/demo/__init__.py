"""``./dev demo``: raylog's main job end to end, on real data, with every claim checked.

::

    act1_start     Ray, the broker, the topics          source.py     the flights as records
    act2_produce   by send and by send_arrow            digest.py     what "the same records" means
    act3_fetch     actor handles, times, digests        stage.py      what acts share
    act4_spark     two ways into Spark, a picture       picture.py    the PNG
    act5_stream    queries over a topic that grows      report.py     the Markdown
    act6_crash     SIGKILL in the middle of producing   quiet.py      others' noise goes to a file
    act6_node      the same to a node (--nodes 2)       processes.py  who is still running
    act7_restart   the same folders, a new Ray          cluster.py    one Ray node, or two

``play.py`` performs the acts and ends everything; ``__main__.py`` is the command line. Each act is
a file that can be read alone: it says what it does, does it with raylog's public calls, and checks
the outcome against the source data. A check that fails ends the demo with exit status 1.
"""
