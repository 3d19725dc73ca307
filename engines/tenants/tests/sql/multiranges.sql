-- Multiranges.

SELECT '{}'::int4multirange, '{[1,2]}'::int4multirange, ' { [5,7) , [1,2] ,empty}'::int8multirange, '{[1,3),[3,5)}'::nummultirange, '{(,1),[2,)}'::int4multirange;
> {}|{[1,3)}|{[1,3),[5,7)}|{[1,5)}|{(,1),[2,)}
SELECT '{[2024-01-01,2024-01-31],(,2023-01-01)}'::datemultirange, '{["2024-01-01 10:00","2024-01-01 11:00")}'::tsmultirange;
> {(,2023-01-01),[2024-01-01,2024-02-01)}|{["2024-01-01 10:00:00","2024-01-01 11:00:00")}
SELECT '[1,2)'::int4multirange;
! 22P02
SELECT '{[1,2)'::int4multirange;
! 22P02
SELECT '{[1,2),}'::int4multirange;
! 22P02
SELECT '{[3,2)}'::int4multirange;
! 22000
SELECT int4multirange(), int4multirange(int4range(1, 3)), int4multirange(int4range(5, 8), int4range(1, 6), NULL), nummultirange(numrange(1.5, 2), numrange(3, 4));
! 22004
SELECT int4multirange(VARIADIC ARRAY[int4range(5, 8), int4range(1, 2)]), int4multirange('{[1,2)}'), multirange(int8range(1, 2)), int4range(1, 2)::int4multirange;
> {[1,2),[5,8)}|{[1,2)}|{[1,2)}|{[1,2)}
SELECT int4multirange(VARIADIC ARRAY[int4range(5, 8), NULL]);
! 22004
SELECT int4multirange(VARIADIC ARRAY[ARRAY[int4range(5, 8)]]);
! 21000
SELECT lower(m), upper(m), isempty(m), lower_inc(m), upper_inc(m), lower_inf(m), upper_inf(m), range_merge(m) FROM (VALUES ('{[1,2),[5,9)}'::int4multirange), ('{}'), ('{(,3),[7,)}'), (NULL)) v (m) ORDER BY m;
> ||t|f|f|f|f|empty
> ||f|f|f|t|t|(,)
> 1|9|f|t|f|f|f|[1,9)
> |||||||
SELECT m @> 1, 8 <@ m, m @> int4range(1, 2), m <@ int4range(0, 10), m @> '{[6,7)}', m && int4range(3, 6), int4range(2, 5) && m, m && '{[8,20)}' FROM (VALUES ('{[1,2),[5,9)}'::int4multirange), ('{}'), (NULL)) v (m) ORDER BY m;
> f|f|f|t|f|f|f|f
> t|t|t|t|t|t|f|t
> |||||||
SELECT m << int4range(9, 10), int4range(0, 1) << m, m >> '{[0,1)}', m &< '{[0,9)}', m &> int4range(1, 2), m -|- int4range(9, 10), int4range(2, 5) -|- m FROM (VALUES ('{[1,2),[5,9)}'::int4multirange), ('{}')) v (m) ORDER BY m;
> f|f|f|f|f|f|f
> t|t|t|t|t|t|f
SELECT m + '{[2,6)}', m * '{[0,6)}', m - '{[6,7)}', m - m, m + m FROM (VALUES ('{[1,2),[5,9)}'::int4multirange), ('{}'), (NULL)) v (m) ORDER BY m;
> {[2,6)}|{}|{}|{}|{}
> {[1,9)}|{[1,2),[5,6)}|{[1,2),[5,6),[7,9)}|{}|{[1,2),[5,9)}
> ||||
SELECT '{[1.0,2.0],(3,4)}'::nummultirange - '{[1.5,3.5]}'::nummultirange, '{(,)}'::int8multirange - '{[5,6)}';
> {[1.0,1.5),(3.5,4)}|{(,5),[6,)}
SELECT '{[1,2)}'::int4multirange + int4range(3, 4);
! 42883
SELECT '{[1,2)}'::int4multirange @> 1::bigint;
! 42883
SELECT '{[1,2)}'::int4multirange = '{[1,2)}', '{}'::int4multirange < '{[1,2)}', '{[1,2)}'::int4multirange < '{[1,2),[5,6)}', '{[1,2),[5,6)}'::int4multirange < '{[1,3)}', '{(,2)}'::int4multirange < '{[1,2)}';
> t|t|t|t|t
SELECT * FROM unnest('{[1,2),[5,9)}'::int4multirange);
> [1,2)
> [5,9)
SELECT unnest('{(,2),[5,9)}'::nummultirange) ORDER BY 1;
> (,2)
> [5,9)
CREATE TABLE shifts (m int4multirange PRIMARY KEY, d datemultirange, n int);
= CREATE TABLE
INSERT INTO shifts VALUES ('{[1,2),[5,9)}', '{[2024-01-01,2024-02-01)}', 1), ('{}', '{}', 2), ('{[1,2)}', NULL, 3), ('{(,2)}', '{(,)}', 4), ('{[1,3)}', '{(,2024-01-01)}', 5);
= INSERT 0 5
INSERT INTO shifts VALUES ('{[5,9),[1,2)}');
! 23505
CREATE INDEX ON shifts (d DESC);
= CREATE INDEX
SELECT n FROM shifts ORDER BY m;
> 2
> 4
> 3
> 1
> 5
SELECT n FROM shifts ORDER BY d DESC NULLS LAST, n;
> 1
> 4
> 5
> 2
> 3
SELECT n FROM shifts WHERE m >= '{[1,2)}' ORDER BY n;
> 1
> 3
> 5
SELECT n FROM shifts WHERE m = '{[1,2)}';
> 3
SELECT n FROM shifts WHERE m @> 5 ORDER BY n;
> 1
SELECT count(DISTINCT m), array_agg(m ORDER BY n) FROM shifts;
> 5|{"{[1,2),[5,9)}","{}","{[1,2)}","{(,2)}","{[1,3)}"}
SELECT array_agg(m), ARRAY['{[1,2)}'::int4multirange], '{"{[1,2),[5,6)}",NULL}'::int4multirange[] FROM shifts WHERE n = 1;
> {"{[1,2),[5,9)}"}|{"{[1,2)}"}|{"{[1,2),[5,6)}",NULL}
SELECT to_json(m), m::text, pg_typeof(m), pg_typeof('{}'::tstzmultirange[]) FROM shifts WHERE n = 1;
> "{[1,2),[5,9)}"|{[1,2),[5,9)}|int4multirange|tstzmultirange[]
SELECT min(m) FROM shifts WHERE n < 0;
! 42883
SELECT typname, typtype, typcategory, typarray FROM pg_type WHERE typname LIKE '%multirange' AND typname NOT LIKE 'any%' ORDER BY oid;
> int4multirange|m|R|6150
> nummultirange|m|R|6151
> tsmultirange|m|R|6152
> tstzmultirange|m|R|6153
> datemultirange|m|R|6155
> int8multirange|m|R|6157
> _int4multirange|b|A|0
> _nummultirange|b|A|0
> _tsmultirange|b|A|0
> _tstzmultirange|b|A|0
> _datemultirange|b|A|0
> _int8multirange|b|A|0
SELECT rngtypid, rngmultitypid FROM pg_range ORDER BY 1;
> 3904|4451
> 3906|4532
> 3908|4533
> 3910|4534
> 3912|4535
> 3926|4536
DROP TABLE shifts;
= DROP TABLE
