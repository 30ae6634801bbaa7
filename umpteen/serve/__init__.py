"""``umpteen serve``: models behind HTTP. ``create_app`` in ``app`` makes the application, ``process`` runs it.

Needs the extra ``serve``. Nothing here is imported unless a server is wanted.
"""
