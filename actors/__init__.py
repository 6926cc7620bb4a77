"""Ray actors: thin shells over ``raylog.storage`` and over pure state machines."""
