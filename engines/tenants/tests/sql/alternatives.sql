-- Conditions with alternatives, whose rows are looked up one by one.
CREATE TABLE stock (w int, i int, n int, kind text, PRIMARY KEY (w, i));
= CREATE TABLE
INSERT INTO stock SELECT 1, a.v * 10 + b.v, a.v, CASE WHEN b.v < 5 THEN 'low' ELSE 'high' END FROM (VALUES (0), (1), (2), (3)) a(v), (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) b(v);
= INSERT 0 40
INSERT INTO stock SELECT 2, i, n + 100, kind FROM stock;
= INSERT 0 40
CREATE INDEX stock_by_n ON stock (n);
= CREATE INDEX
SELECT w, i, n FROM stock WHERE (w, i) IN ((1, 3), (2, 39), (3, 3)) ORDER BY 1, 2;
> 1|3|0
> 2|39|103
SELECT w, i, n FROM stock WHERE (w, i) IN ((1, 3), (1, 3), (1, NULL)) ORDER BY 1, 2;
> 1|3|0
SELECT count(*) FROM stock WHERE (w, i) NOT IN ((1, 3), (2, 39));
> 78
SELECT count(*) FROM stock WHERE (w, i) NOT IN ((1, 3), (2, NULL));
> 39
SELECT w, i FROM stock WHERE w = 1 AND i IN (5, 7, 5, 77) ORDER BY i DESC;
> 1|7
> 1|5
SELECT w, i FROM stock WHERE w IN (1, 2) AND i = 4 ORDER BY 1;
> 1|4
> 2|4
SELECT w, i FROM stock WHERE w IN (1, 2) AND i IN (4, 5) ORDER BY 1, 2;
> 1|4
> 1|5
> 2|4
> 2|5
SELECT w, i FROM stock WHERE (w = 1 AND i = 4) OR (w = 2 AND i > 37) OR (i = 4 AND w = 1) ORDER BY 1, 2;
> 1|4
> 2|38
> 2|39
SELECT w, i FROM stock WHERE w = 1 AND (i < 2 OR i > 37 OR i BETWEEN 0 AND 1) ORDER BY 2;
> 1|0
> 1|1
> 1|38
> 1|39
SELECT count(*) FROM stock WHERE n IN (1, 2, 101);
> 30
SELECT count(*) FROM stock WHERE n = 1 OR kind = 'low';
> 45
SELECT count(*) FROM stock WHERE n = 1 OR n = 2 AND kind = 'low' OR w = 1 AND i = 0;
> 16
SELECT a.i, b.i FROM stock a JOIN stock b ON b.w = 2 AND b.i IN (a.i, a.i + 1) WHERE a.w = 1 AND a.i IN (1, 39) ORDER BY 1, 2;
> 1|1
> 1|2
> 39|39
SELECT i FROM stock WHERE (w, i) IN ((1, 8), (1, 9)) FOR UPDATE;
> 8
> 9
UPDATE stock SET n = n + 1 WHERE (w, i) IN ((1, 8), (1, 9), (1, 8)) AND kind = 'high';
= UPDATE 2
SELECT w, i, n FROM stock WHERE w = 1 AND i IN (8, 9) ORDER BY i;
> 1|8|1
> 1|9|1
UPDATE stock SET n = n + 1 WHERE n IN (1, 2, 3);
= UPDATE 32
DELETE FROM stock WHERE w = 1 AND i = 0 OR w = 2 AND i IN (0, 1);
= DELETE 3
SELECT count(*) FROM stock WHERE w IN (1, 2);
> 77
SELECT i FROM stock WHERE (w, i) IN ((1, 2, 3));
! 42601
SELECT i FROM stock WHERE w IN (1, 'x');
! 22P02
DROP TABLE stock;
= DROP TABLE
SELECT pg_typeof(CASE WHEN true THEN 'a'::text ELSE 'b'::varchar END), pg_typeof(CASE WHEN true THEN 'a'::varchar ELSE 'b'::text END);
> character varying|text
SELECT pg_typeof(nullif('a'::varchar, 'b')), pg_typeof(nullif('a'::char(2), 'b'));
> text|character
SELECT 1 IS DISTINCT FROM 2 AND false, NOT 1 IS DISTINCT FROM 1 OR false, true IS NOT DISTINCT FROM 1 = 1 AND NULL IS DISTINCT FROM 3;
> f|t|t
SELECT greatest(3.00, 3), least(3, 3.00), greatest('-0'::float8, 0), least(0, '-0'::float8), greatest(NULL, 2, NULL);
> 3.00|3|-0|0|2
