"""What the charts share: their contract and rows, texts, theme, layout and lines."""
