"""Documents in several formats: which parts are translated, and what stays as it is.

The readers are our own, because a document keeps every byte that is not translated. Libraries for
these formats rewrite the whole document: polib and translate-toolkit wrap the strings of PO again,
pysubs2 normalizes subtitles, python-docx joins runs, and the csv module of Python does not tell how
a cell was quoted.
"""
