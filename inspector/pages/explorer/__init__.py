"""The explorer: attention that can be touched. What a page stores, the page itself, and the notebook's view of it.

The front end is in `pages/static/explorer/`: ES modules, one idea each, which start at `explorer.js`.
"""
