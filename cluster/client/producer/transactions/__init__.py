"""Transactions of a producer: all of their records and offsets count, or none does.

==================  ===========================================================
``states.py``       in which state which call is allowed, and where it leads
``bodies.py``       the requests' bodies
``asking.py``       asks a coordinator again while it does not serve
``transaction.py``  the calls: they wait, ask, and end what is sent
==================  ===========================================================
"""
