SELECT 'foo' LIKE ANY (ARRAY['%a', '%o']), 'foo' LIKE ANY (ARRAY['%a', '%b']), 'foo' LIKE ALL (ARRAY['f%', '%o']), 'foo' LIKE ALL (ARRAY['f%', '%b']);
> t|f|t|f
SELECT 'foo' NOT LIKE ANY (ARRAY['%a', '%b']), 'foo' NOT LIKE ANY (ARRAY['f%', '%o']), 'foo' NOT LIKE ALL (ARRAY['%a', '%o']), 'foo' NOT LIKE ALL (ARRAY['%a', '%b']);
> t|f|f|t
SELECT 'foo' ILIKE ANY (ARRAY['%A', '%O']), 'foo' ILIKE ALL (ARRAY['F%', '%O']), 'foo' NOT ILIKE ANY (ARRAY['F%', '%O']), 'foo' LIKE SOME (ARRAY['f%']);
> t|t|f|t
-- A pattern that is NULL is not known; one that decides is.
SELECT 'foo' LIKE ANY (ARRAY['%a', NULL]) IS NULL, 'foo' LIKE ANY (ARRAY['f%', NULL]), 'foo' LIKE ALL (ARRAY['f%', NULL]) IS NULL, 'foo' LIKE ALL (ARRAY['g%', NULL]);
> t|t|t|f
SELECT NULL LIKE ANY (ARRAY['%']) IS NULL, 'foo' LIKE ANY (NULL::text[]) IS NULL, 'foo' LIKE ANY ('{}'), 'foo' LIKE ALL ('{}');
> t|t|f|t
SELECT 'foo' ~~ ANY ('{f%,x}'), 'foo' !~~ ALL ('{x,y}'), 'FOO' ~~* ANY ('{f%}'), 'FOO' !~~* ALL ('{f%}');
> t|t|t|f
SELECT x FROM unnest('{apple,banana,cherry}'::text[]) x WHERE x LIKE ANY ('{a%,%y}') ORDER BY x;
> apple
> cherry
CREATE TABLE words (word varchar(10), code character(4));
= CREATE TABLE
INSERT INTO words VALUES ('one', 'ab'), ('two', 'cd');
= INSERT 0 2
SELECT word FROM words WHERE word LIKE ANY (ARRAY['o%', 'x%']::varchar[]) ORDER BY word;
> one
-- The blanks of a character count.
SELECT word, code LIKE ANY ('{ab}'), code LIKE ANY ('{ab%}'), code LIKE ALL ('{"ab  "}') FROM words ORDER BY word;
> one|f|t|t
> two|f|f|f
SELECT 'foo' LIKE ANY ('x');
! 22P02
SELECT 'foo' LIKE ANY ('x'::text);
! 42809
SELECT 1 LIKE ANY ('{x}'::text[]);
! 42883
SELECT 'foo' LIKE ANY (ARRAY[1, 2]);
! 42883
SELECT 'a' LIKE ANY ('{"a\\"}');
> f
SELECT 'foo' LIKE ANY (ARRAY['x']) ESCAPE '#';
! 42601
SELECT 'foo' LIKE ALL (ARRAY['x']) ESCAPE '#';
! 42601
-- The names that PostgreSQL keeps of types of arrays.
CREATE TYPE mood AS ENUM ('sad', 'glad');
= CREATE TYPE
SELECT '{1,2}'::_int4, '{a,"b c"}'::_text, '{1.50}'::pg_catalog._numeric, '{sad}'::_mood, '{2026-01-01}'::_date;
> {1,2}|{a,"b c"}|{1.50}|{sad}|{2026-01-01}
CREATE TABLE listed (a _int8, b _varchar);
= CREATE TABLE
INSERT INTO listed VALUES ('{5}', '{x}');
= INSERT 0 1
SELECT a || 6, b FROM listed;
> {5,6}|{x}
SELECT '{1}'::_int9;
! 42704
SELECT '{1}'::__int4;
! 42704
