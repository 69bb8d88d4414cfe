"""How reports are drawn and rendered: HTML pages, charts, figures."""
