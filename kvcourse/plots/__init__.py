"""The figures of the lessons, one module a lesson and `style` for all. matplotlib is imported when one is drawn."""
