-- inet and cidr.
SELECT '192.168.1.226/24'::inet, '192.168.1.226'::inet, '10/8'::inet, '::ffff:1.2.3.4'::inet, '2001:DB8::1/64'::inet, '::2'::inet;
> 192.168.1.226/24|192.168.1.226|10.0.0.0/8|::ffff:1.2.3.4|2001:db8::1/64|::2
SELECT '192.168.1'::cidr, '10'::cidr, '224'::cidr, '2001:db8::/32'::cidr, '10.1.2.3'::cidr;
> 192.168.1.0/24|10.0.0.0/8|224.0.0.0/4|2001:db8::/32|10.1.2.3/32
SELECT '10.1.2.3/8'::cidr;
! 22P02
SELECT '1.2.3'::inet;
! 22P02
SELECT '1.2.3.4/33'::inet;
! 22P02
SELECT '10.1.2.3'::inet::text, '10.1.2.3'::inet::varchar, '10.0.0.0/8'::cidr::text, '10.1.2.3/8'::inet::cidr, '10.0.0.0/8'::cidr::inet, '1.2.3.4'::text::inet;
> 10.1.2.3/32|10.1.2.3/32|10.0.0.0/8|10.0.0.0/8|10.0.0.0/8|1.2.3.4
SELECT host(i), abbrev(i), family(i), masklen(i), netmask(i), hostmask(i), broadcast(i), network(i), text(i) FROM (VALUES ('10.1.2.3/8'::inet), ('::1'), ('1.2.3.4/0'), ('2001:db8::7/64')) v (i) ORDER BY i;
> 1.2.3.4|1.2.3.4/0|4|0|0.0.0.0|255.255.255.255|255.255.255.255/0|0.0.0.0/0|1.2.3.4/0
> 10.1.2.3|10.1.2.3/8|4|8|255.0.0.0|0.255.255.255|10.255.255.255/8|10.0.0.0/8|10.1.2.3/8
> ::1|::1|6|128|ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff|::|::1|::1/128|::1/128
> 2001:db8::7|2001:db8::7/64|6|64|ffff:ffff:ffff:ffff::|::ffff:ffff:ffff:ffff|2001:db8::ffff:ffff:ffff:ffff/64|2001:db8::/64|2001:db8::7/64
SELECT abbrev('10.1.0.0/16'::cidr), abbrev('10.0.0.0/8'::cidr), abbrev('0.0.0.0/0'::cidr), set_masklen('10.1.2.3/8'::inet, 16), set_masklen('10.1.0.0/16'::cidr, 8), set_masklen('10.1.2.3'::inet, -1);
> 10.1/16|10/8|0/0|10.1.2.3/16|10.0.0.0/8|10.1.2.3
SELECT set_masklen('10.1.2.3/8'::inet, 33);
! 22023
SELECT inet '10.1.2.3' << '10/8', inet '10/8' << '10/8', inet '10/8' <<= '10/8', inet '10/8' >> '10.1.2.3', inet '10/8' >>= '10/8', inet '10/8' && '10.1/16';
> t|f|t|t|t|t
SELECT ~ inet '10.1.2.3/8', inet '10.1.2.3/8' & '255.255.0.0', inet '10.1.2.3/8' | '0.0.0.255', inet '10.1.2.3' + 300, 5 + inet '10.1.2.3', inet '10.1.2.3' - 4, inet '10.1.2.3' - inet '10.1.0.0';
> 245.254.253.252/8|10.1.0.0|10.1.2.255|10.1.3.47|10.1.2.8|10.1.1.255|515
SELECT inet '255.255.255.255' + 1;
! 22003
SELECT inet '1.2.3.4' & '::1';
! 22023
SELECT inet_same_family('1.2.3.4', '::1'), inet_merge('192.168.1.5/24', '192.168.2.5/24'), pg_typeof(inet_merge('1.1.1.1', '1.1.1.2'));
> f|192.168.0.0/22|cidr
SELECT inet_merge('1.2.3.4', '::1');
! 22023
SELECT '10.0.0.0/8'::cidr = '10.0.0.0/8'::inet, '10.0.0.0/8'::inet < '10.0.0.1/8'::inet, '9.0.0.0/8'::inet < '10.0.0.0/9'::inet, '255.255.255.255'::inet < '::'::inet;
> t|t|t|t
CREATE TABLE nets (i inet, c cidr, m macaddr, n int);
= CREATE TABLE
INSERT INTO nets VALUES ('10.1.2.3/8', '10.0.0.0/8', '08:00:2b:01:02:03', 1), ('::1', '::/0', '8-0-2b-1-2-3', 2), ('10.0.0.0/9', '10.0.0.0/9', '08002b010204', 3), (NULL, NULL, NULL, 4), ('9.9.9.9', '9.9.9.9', 'ff00.0000.0000', 5);
= INSERT 0 5
CREATE INDEX ON nets (i);
= CREATE INDEX
CREATE UNIQUE INDEX ON nets (n, c, m DESC);
= CREATE INDEX
SELECT n FROM nets ORDER BY i, n;
> 5
> 1
> 3
> 2
> 4
SELECT n FROM nets ORDER BY i DESC NULLS LAST, n;
> 2
> 3
> 1
> 5
> 4
SELECT n FROM nets WHERE i >= '10.0.0.0/9' ORDER BY n;
> 2
> 3
SELECT n FROM nets WHERE i = '::1';
> 2
SELECT n FROM nets WHERE i << '10.0.0.0/8' ORDER BY n;
> 3
SELECT min(i), max(i), count(DISTINCT c) FROM nets;
> 9.9.9.9|::1|4
SELECT array_agg(i ORDER BY n), array_agg(c ORDER BY n) FROM nets WHERE n <> 4;
> {10.1.2.3/8,::1,10.0.0.0/9,9.9.9.9}|{10.0.0.0/8,::/0,10.0.0.0/9,9.9.9.9/32}
SELECT '{10.1.2.3/8,::1}'::inet[], ARRAY['10/8'::cidr], '10.1.2.3'::inet = ANY ('{10.1.2.3,::1}'::inet[]);
> {10.1.2.3/8,::1}|{10.0.0.0/8}|t
SELECT to_jsonb(i), to_json(m) FROM nets WHERE n = 1;
> "10.1.2.3/8"|"08:00:2b:01:02:03"
SELECT m, trunc(m), ~m, m & '00:00:ff:ff:ff:ff', m | 'ff:00:00:00:00:00', m::macaddr8 FROM nets WHERE n = 1;
> 08:00:2b:01:02:03|08:00:2b:00:00:00|f7:ff:d4:fe:fd:fc|00:00:2b:01:02:03|ff:00:2b:01:02:03|08:00:2b:ff:fe:01:02:03
SELECT count(DISTINCT m) FROM nets;
> 3
SELECT '08:00:2b:01:02:03:04:05'::macaddr8, '08002b010203'::macaddr8, macaddr8_set7bit('00:08:2b:01:02:03'::macaddr8), '08:00:2b:ff:fe:02:03:04'::macaddr8::macaddr;
> 08:00:2b:01:02:03:04:05|08:00:2b:ff:fe:01:02:03|02:08:2b:ff:fe:01:02:03|08:00:2b:02:03:04
SELECT '08:00:2b:01:02:03:04:05'::macaddr8::macaddr;
! 22003
SELECT 'no'::macaddr;
! 22P02
SELECT typname, typlen, typtype, typcategory FROM pg_type WHERE typname IN ('inet', 'cidr', 'macaddr', 'macaddr8', '_inet') ORDER BY 1;
> _inet|-1|b|A
> cidr|-1|b|I
> inet|-1|b|I
> macaddr|6|b|U
> macaddr8|8|b|U
ALTER TABLE nets ALTER COLUMN c TYPE inet, ALTER COLUMN i TYPE text;
= ALTER TABLE
SELECT i, c FROM nets ORDER BY n;
> 10.1.2.3/8|10.0.0.0/8
> ::1/128|::/0
> 10.0.0.0/9|10.0.0.0/9
> |
> 9.9.9.9/32|9.9.9.9
DROP TABLE nets;
= DROP TABLE
CREATE TABLE blocks (v cidr PRIMARY KEY);
= CREATE TABLE
INSERT INTO blocks VALUES ('10.0.0.0/8'), ('1.2.3.4'), ('::/0');
= INSERT 0 3
SELECT count(*) FROM blocks WHERE v = '10.0.0.1/8';
> 0
SELECT count(*) FROM blocks WHERE v = '10';
! 22P02
SELECT count(*) FROM blocks WHERE v = ANY ('{10.0.0.0/8,10.0.0.1}');
> 1
SELECT v FROM blocks WHERE v > '5.5.5.5' ORDER BY v;
> 10.0.0.0/8
> ::/0
SELECT min(v), max(v), pg_typeof(min(v)) FROM blocks;
> 1.2.3.4|::/0|inet
SELECT min('08:00:2b:01:02:03'::macaddr);
! 42883
DROP TABLE blocks;
= DROP TABLE
