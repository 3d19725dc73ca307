import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** JDBC: batches, a fetch size, generated keys, a transaction that is rolled back. */
public final class Smoke {
  private Smoke() {}

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  public static void main(String[] arguments) throws SQLException {
    String url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/postgres?user=postgres";
    try (Connection connection = DriverManager.getConnection(url); Statement statement = connection.createStatement()) {
      statement.execute("CREATE TABLE of_jdbc (id serial PRIMARY KEY, name varchar(20) NOT NULL, price numeric(8,2))");
      connection.setAutoCommit(false);
      try (PreparedStatement insert = connection.prepareStatement("INSERT INTO of_jdbc (name, price) VALUES (?, ?)")) {
        for (int number = 1; number <= 300; number++) {
          insert.setString(1, "number " + number);
          insert.setBigDecimal(2, new BigDecimal(number).movePointLeft(1));
          insert.addBatch();
        }
        check(insert.executeBatch().length == 300, "a batch of 300");
      }
      connection.commit();
      try (PreparedStatement select = connection.prepareStatement("SELECT id, name, price FROM of_jdbc WHERE price > ? ORDER BY id")) {
        select.setFetchSize(40);
        select.setBigDecimal(1, new BigDecimal("10.0"));
        int next = 101;
        try (ResultSet rows = select.executeQuery()) {
          while (rows.next()) {
            check(rows.getInt("id") == next && rows.getString(2).equals("number " + next), "row " + next);
            next++;
          }
        }
        check(next == 301, "all rows, some at a time");
      }
      statement.executeUpdate("INSERT INTO of_jdbc (name) VALUES ('one more')", Statement.RETURN_GENERATED_KEYS);
      try (ResultSet keys = statement.getGeneratedKeys()) {
        check(keys.next() && keys.getInt(1) == 301, "a generated key");
      }
      try {
        statement.executeUpdate("INSERT INTO of_jdbc (id, name) VALUES (1, 'again')");
        check(false, "a duplicate was taken");
      } catch (SQLException refused) {
        check(refused.getSQLState().equals("23505"), refused.getSQLState());
      }
      connection.rollback();
      try (ResultSet rows = statement.executeQuery("SELECT count(*) FROM of_jdbc")) {
        check(rows.next() && rows.getLong(1) == 300, "what was rolled back is not there");
      }
    }
    System.out.println("java: ok");
  }
}
