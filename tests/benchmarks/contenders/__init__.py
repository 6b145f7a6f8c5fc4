"""One file a trainer that `train.py` compares; each is run in a process, and where need be an environment, of its own.

Called with the path of a JSON file of settings, it trains and prints one JSON line: the work and the time of all steps
but the first ones, and the peak of the whole process's memory.
"""
