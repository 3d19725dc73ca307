SELECT * FROM bidz;
