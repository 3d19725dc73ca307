-- Ranges.
SELECT '[1,5]'::int4range, '(1,2)'::int4range, ' EMPTY '::int8range, '[,5]'::int4range, '(,)'::daterange, '[1.50,1.5]'::numrange, '(1,1]'::numrange;
> [1,6)|empty|empty|(,6)|(,)|[1.50,1.5]|empty
SELECT '[2024-02-28,2024-02-29]'::daterange, '[2024-01-01 00:00,2024-02-01)'::tsrange, '["2024-01-01 00:00", infinity]'::tsrange, '[2024-02-28,infinity]'::daterange;
> [2024-02-28,2024-03-01)|["2024-01-01 00:00:00","2024-02-01 00:00:00")|["2024-01-01 00:00:00",infinity]|[2024-02-28,infinity]
SELECT '[2,1]'::int4range;
! 22000
SELECT '[1,2'::int4range;
! 22P02
SELECT '1,2'::int4range;
! 22P02
SELECT '[1,2]x'::int4range;
! 22P02
SELECT '[1,2147483647]'::int4range;
! 22003
SELECT int4range(1, 5), int4range(1, 5, '[]'), int4range(NULL, 5), int4range(1, NULL, '(]'), numrange(1, 5.5), daterange('2024-01-01', '2024-02-01', '()'), int8range(3, 3), numrange(2, 2, '[]');
> [1,5)|[1,6)|(,5)|[2,)|[1,5.5)|[2024-01-02,2024-02-01)|empty|[2,2]
SELECT int4range(1, 5, 'x');
! 42601
SELECT int4range(1, 5, NULL);
! 22000
SELECT int4range(5, 1);
! 22000
SELECT lower(r), upper(r), isempty(r), lower_inc(r), upper_inc(r), lower_inf(r), upper_inf(r) FROM (VALUES ('[1,5)'::int4range), ('empty'), ('(,7)'), ('[3,)')) v (r) ORDER BY r;
> ||t|f|f|f|f
> |7|f|f|f|t|f
> 1|5|f|t|f|f|f
> 3||f|t|f|f|t
SELECT r @> '[2,3)', r @> 2, 9 <@ r, r <@ '[0,10)', r && '[4,9)', r << '[5,9)', r >> '[0,1)', r &< '[0,5)', r &> '[1,2)', r -|- '[5,6)' FROM (VALUES ('[1,5)'::int4range), ('empty'), (NULL)) v (r) ORDER BY r;
> f|f|f|t|f|f|f|f|f|f
> t|t|f|t|t|t|t|t|t|t
> |||||||||
SELECT '[1,5)'::int4range + '[5,9)', '[1,5)'::int4range * '[3,9)', '[1,5)'::int4range - '[3,9)', '[1,5)'::int4range * '[7,9)', range_merge('[1,2)'::int4range, '[7,9)');
> [1,9)|[3,5)|[1,3)|empty|[1,9)
SELECT '[1,5)'::int4range + '[7,9)';
! 22000
SELECT '[1,9)'::int4range - '[3,4)';
! 22000
SELECT numrange(1.0, 2.0) = numrange(1, 2), numrange(1, 2) < numrange(1, 3), 'empty'::numrange < '(,1)', '(,1)'::numrange < '[0,1)', numrange(1, 2, '[]') > numrange(1, 2), '[1,2]'::numrange -|- '(2,3)';
> t|t|t|t|t|t
SELECT '[1,2)'::int4range = '[1,2)'::int8range;
! 42883
SELECT '[1,2)'::int4range @> 'x'::text;
! 42883
CREATE TABLE booked (id int PRIMARY KEY, during tsrange NOT NULL, days daterange, seats int4range DEFAULT '[1,1]', CHECK (NOT isempty(during)));
= CREATE TABLE
INSERT INTO booked VALUES (1, '[2024-01-01 10:00,2024-01-01 11:00)', '[2024-01-01,2024-01-05)', '[1,4]'), (2, tsrange('2024-01-01 11:00', '2024-01-01 12:00'), NULL, 'empty'), (3, '(,2024-01-01)', '(,)', '[2,)'), (4, '[2024-01-01 10:00,2024-01-01 10:30]', 'empty', '[1,4)');
= INSERT 0 4
INSERT INTO booked (id, during) VALUES (5, 'empty');
! 23514
INSERT INTO booked (id, during) VALUES (5, '[2025-01-01,2025-01-02)');
= INSERT 0 1
SELECT id FROM booked WHERE during && '[2024-01-01 10:30,2024-01-01 11:00]' ORDER BY id;
> 1
> 2
> 4
SELECT id FROM booked WHERE during @> '2024-01-01 10:15'::timestamp ORDER BY id;
> 1
> 4
CREATE INDEX ON booked (during);
= CREATE INDEX
CREATE UNIQUE INDEX ON booked (seats DESC);
= CREATE INDEX
SELECT id FROM booked ORDER BY during;
> 3
> 4
> 1
> 2
> 5
SELECT id FROM booked ORDER BY seats DESC, id;
> 3
> 1
> 4
> 5
> 2
SELECT id FROM booked ORDER BY days, id;
> 4
> 3
> 1
> 2
> 5
SELECT id FROM booked WHERE during > '[2024-01-01 10:00,2024-01-01 10:30]' ORDER BY id;
> 1
> 2
> 5
SELECT id FROM booked WHERE seats = '[1,5)';
> 1
INSERT INTO booked VALUES (6, '(,)', NULL, '[1,4]');
! 23505
SELECT array_agg(seats ORDER BY id), count(DISTINCT days) FROM booked;
> {"[1,5)",empty,"[2,)","[1,4)","[1,2)"}|3
SELECT '{"[1,5)",empty}'::int4range[], ARRAY[int4range(1, 2)], '[1,2)'::int4range = ANY ('{"[1,2)"}'::int4range[]);
> {"[1,5)",empty}|{"[1,2)"}|t
SELECT during::text, to_json(seats), upper(during) - lower(during) FROM booked WHERE id = 1;
> ["2024-01-01 10:00:00","2024-01-01 11:00:00")|"[1,5)"|01:00:00
SELECT min(seats) FROM booked;
! 42883
SELECT rngtypid, rngsubtype, rngcanonical::text, rngsubdiff::text FROM pg_range ORDER BY 1;
> 3904|23|int4range_canonical|int4range_subdiff
> 3906|1700|-|numrange_subdiff
> 3908|1114|-|tsrange_subdiff
> 3910|1184|-|tstzrange_subdiff
> 3912|1082|daterange_canonical|daterange_subdiff
> 3926|20|int8range_canonical|int8range_subdiff
SELECT typname, typtype, typcategory, typarray FROM pg_type WHERE typname IN ('int4range', 'tstzrange', '_daterange') ORDER BY 1;
> _daterange|b|A|0
> int4range|r|R|3905
> tstzrange|r|R|3911
DROP TABLE booked;
= DROP TABLE
