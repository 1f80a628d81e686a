"""The bottom room: text and places, shapes, literals, attributes, the lossless module and its rewriter."""
