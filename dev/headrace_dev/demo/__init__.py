"""The demo: a small shop whose tables stand in the lake while people buy (``make demo``).

``schema`` creates the shop, ``load`` keeps it busy, ``compare`` proves that lake and database are equal, ``view`` shows
what goes on, ``show`` ties them together.
"""
