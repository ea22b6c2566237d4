# ruff: noqa
# Blanks every later cell with a syntax tree transformer.

# %%
import ast


class Blank(ast.NodeTransformer):
    def visit_Module(self, node):
        return ast.Module(body=[], type_ignores=[])


get_ipython().ast_transformers.append(Blank())
