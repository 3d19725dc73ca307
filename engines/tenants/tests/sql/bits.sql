-- bit and bit varying.
SELECT B'101', X'1F', b'', pg_typeof(B'1'), '101'::bit(5), '101'::bit(2), '101'::varbit(2), '101'::bit, 'x1f'::varbit;
> 101|00011111||bit|10100|10|10|1|00011111
SELECT B'102';
! 22P02
SELECT 'abc'::varbit;
! 22P02
SELECT 5::bit(8), (-1)::bit(4), (-1)::bit(40), 300::bigint::bit(4), B'1111'::int, X'ffffffff'::int, X'ffffffffffffffff'::bigint, 5::bit;
> 00000101|1111|1111111111111111111111111111111111111111|1100|15|-1|-1|1
SELECT X'1ffffffff'::int;
! 22003
SELECT B'0011' & B'0101', B'0011' | B'0101', B'0011' # B'0101', ~ B'0011', B'0011' << 1, B'0011' >> 1, B'0011' << -1, B'01' || B'1', B'01' || '11';
> 0001|0111|0110|1100|0110|0001|0001|011|0111
SELECT B'01' & B'1';
! 22026
SELECT length(B'0011'), bit_length(B'001'), octet_length(B'000000001'), bit_count(B'1011'), position(B'11' IN B'00110'), position(B'' IN B'1'), get_bit(B'0100', 1), set_bit(B'0100', 0, 1);
> 4|3|2|3|3|1|1|1100
SELECT substring(B'10110' FROM 2 FOR 3), substring(B'10110' FROM 4), substring(B'10110', -1, 3), overlay(B'10110' PLACING B'000' FROM 2), overlay(B'10110' PLACING B'1' FROM 2 FOR 3);
> 011|10|1|10000|110
SELECT get_bit(B'01', 2);
! 2202E
SELECT substring(B'10110', 2, -1);
! 22011
SELECT B'1' < B'10', B'10' < B'11', B'01' < B'1', B'11' = '11'::varbit, B'' < B'0';
> t|t|t|t|t
CREATE TABLE flags (b bit(4), v bit varying(6), n int);
= CREATE TABLE
INSERT INTO flags VALUES ('0101', '1', 1), (B'1111', B'101010', 2), (B'0000', '', 3), (NULL, NULL, 4);
= INSERT 0 4
INSERT INTO flags VALUES ('010', '1', 5);
! 22026
INSERT INTO flags VALUES (B'01011', '1', 5);
! 22026
INSERT INTO flags VALUES ('0101', '1010101', 5);
! 22001
INSERT INTO flags VALUES ('0101'::bit(3), '1', 5);
! 22026
CREATE INDEX ON flags (v DESC);
= CREATE INDEX
CREATE UNIQUE INDEX ON flags (b);
= CREATE INDEX
SELECT n FROM flags ORDER BY b, n;
> 3
> 1
> 2
> 4
SELECT n FROM flags WHERE v >= '1' ORDER BY n;
> 1
> 2
SELECT b || v, b & B'0110', v::text, b::varchar FROM flags ORDER BY n;
> 01011|0100|1|0101
> 1111101010|0110|101010|1111
> 0000|0000||0000
> |||
SELECT array_agg(b ORDER BY n), count(DISTINCT v) FROM flags WHERE n < 4;
> {0101,1111,0000}|3
SELECT '{01,1}'::bit(2)[];
> {01,10}
SELECT min(b) FROM flags;
! 42883
CREATE TABLE wrong (b bit(0));
! 22023
SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = 'flags'::regclass AND attnum > 0 ORDER BY attnum;
> b|bit(4)
> v|bit varying(6)
> n|integer
DROP TABLE flags;
= DROP TABLE
SELECT bit '101', bit(2) '101', '101'::bit, bit varying '101';
> 101|10|1|101
CREATE TABLE four (v bit(4), w varbit(5));
= CREATE TABLE
SELECT count(*) FROM four WHERE v = ANY ('{0}') OR w = ANY ('{111111}') OR v IN ('1', '0000');
> 0
DROP TABLE four;
= DROP TABLE
