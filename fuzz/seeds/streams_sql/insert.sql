INSERT INTO out (s, a) SELECT ss, a FROM v WHERE ss LIKE '%\_x' ESCAPE '\' AND a IN (1, 2, 3)
