"""The demo: a small shop and its tables in the lake, while customers place orders (``make demo``).

``schema`` creates the shop, ``load`` keeps it busy, ``compare`` checks that lake and database are equal, ``view`` shows
the progress, ``show`` runs all of them.
"""
