-- Rows as values.
SELECT ROW(1, 'a', NULL, '', 'b c', 'q"\\'), (1, 2.50, true, date '2024-02-29'), ROW(), ROW(NULL), ROW(ROW(1, 'x'), ARRAY[1, 2]);
> (1,a,,"","b c","q""\\\\")|(1,2.50,t,2024-02-29)|()|()|("(1,x)","{1,2}")
SELECT pg_typeof(ROW(1, 2)), ROW(1, 'a')::text, (1, 2)::text || '!';
> record|(1,a)|(1,2)!
SELECT '(1,2)'::record;
! 0A000
CREATE TABLE pairs (a int, b text, c numeric);
= CREATE TABLE
INSERT INTO pairs VALUES (1, 'x', 1.0), (1, 'x', 1.00), (2, NULL, 3), (NULL, NULL, NULL), (2, 'y', 0);
= INSERT 0 5
SELECT count(DISTINCT (a, b)), count(pairs), count(DISTINCT pairs) FROM pairs;
> 4|5|4
SELECT a, b FROM pairs ORDER BY (a, b), c;
> 1|x
> 1|x
> 2|y
> 2|
> |
SELECT pairs FROM pairs ORDER BY pairs DESC;
> (,,)
> (2,,3)
> (2,y,0)
> (1,x,1.0)
> (1,x,1.00)
SELECT p, (p).a, (p).b FROM pairs AS p ORDER BY p, (p).c;
> (1,x,1.0)|1|x
> (1,x,1.00)|1|x
> (2,y,0)|2|y
> (2,,3)|2|
> (,,)||
SELECT (a, b), count(*) FROM pairs GROUP BY ROW(a, b) ORDER BY 1;
> (1,x)|2
> (2,y)|1
> (2,)|1
> (,)|1
SELECT array_agg((a, b) ORDER BY a, b), array_agg(pairs ORDER BY a, b, c) FROM pairs;
> {"(1,x)","(1,x)","(2,y)","(2,)","(,)"}|{"(1,x,1.0)","(1,x,1.00)","(2,y,0)","(2,,3)","(,,)"}
SELECT a FROM pairs WHERE (a, b) IS NULL;
> 
SELECT a FROM pairs WHERE (a, b) IS NOT NULL ORDER BY 1;
> 1
> 1
> 2
SELECT a FROM pairs WHERE NOT ROW(a, b) IS NULL ORDER BY 1;
> 1
> 1
> 2
> 2
SELECT (1, NULL) IS DISTINCT FROM (1, NULL), (1, '2') IS DISTINCT FROM (1, 2), ROW(1, 2) IS NOT DISTINCT FROM ROW(1, 3);
> f|f|f
SELECT t.r = ROW(1, 'x'::text), t.r < ROW(1, 'y'::text), t.r <> ROW(1, NULL::text) FROM (SELECT ROW(a, b) AS r FROM pairs WHERE b = 'x') AS t;
> t|t|t
> t|t|t
SELECT t.r = ROW(1, 2, 3) FROM (SELECT ROW(a, b) AS r FROM pairs) AS t;
! 42804
SELECT t.r = ROW(1, 2) FROM (SELECT ROW(a, b) AS r FROM pairs) AS t;
! 42804
SELECT l, r FROM pairs AS l LEFT JOIN (SELECT a AS n FROM pairs WHERE a = 2) AS r ON l.a = r.n AND l.b = 'y' ORDER BY l, r;
> (1,x,1.0)|
> (1,x,1.00)|
> (2,y,0)|(2)
> (2,y,0)|(2)
> (2,,3)|
> (,,)|
SELECT to_json(t.r), to_jsonb(t.r) FROM (SELECT ROW(a, b) AS r FROM pairs WHERE b = 'y') AS t;
> {"f1":2,"f2":"y"}|{"f1": 2, "f2": "y"}
SELECT coalesce(NULL, ROW(1, 2)), CASE WHEN true THEN ROW(1, 'a') END, greatest(ROW(1, 2), ROW(1, 3));
> (1,2)|(1,a)|(1,3)
SELECT min((a, b)) FROM pairs;
! 42883
SELECT (p).no FROM pairs AS p;
! 42703
CREATE TABLE wrong AS SELECT ROW(1, 2);
! 42P16
CREATE VIEW wrong AS SELECT ROW(1, 2) AS r;
! 42P16
INSERT INTO pairs (b) VALUES (ROW(1, 2));
= INSERT 0 1
SELECT b FROM pairs WHERE b LIKE '(%';
> (1,2)
DROP TABLE pairs;
= DROP TABLE
