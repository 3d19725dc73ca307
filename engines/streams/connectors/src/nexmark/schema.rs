//! The columns of the table, as the public `datagen` table declares them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::catalog::{ColumnDef, TableDef, varchar};

/// The three kinds of event; the numbers are those of column `event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Person = 0,
    Auction = 1,
    Bid = 2,
}

impl EventKind {
    /// All of them, by number.
    pub(crate) const ALL: [Self; 3] = [Self::Person, Self::Auction, Self::Bid];

    /// The column that holds events of this kind.
    pub(crate) const fn column(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Auction => "auction",
            Self::Bid => "bid",
        }
    }
}

/// One field of one kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    PersonId,
    PersonName,
    PersonEmail,
    PersonCreditCard,
    PersonCity,
    PersonState,
    PersonExtra,
    AuctionId,
    AuctionItemName,
    AuctionDescription,
    AuctionInitialBid,
    AuctionReserve,
    AuctionExpires,
    AuctionSeller,
    AuctionCategory,
    AuctionExtra,
    BidAuction,
    BidBidder,
    BidPrice,
    BidChannel,
    BidUrl,
    BidExtra,
    /// When the event happened.
    DateTime,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Long,
    Text,
    Time,
}

impl Type {
    fn arrow(self) -> DataType {
        match self {
            Self::Long => DataType::Int64,
            Self::Text => varchar(),
            Self::Time => DataType::Timestamp(TimeUnit::Millisecond, None),
        }
    }
}

type FieldTable = [(&'static str, Leaf, Type)];

const PERSON: &FieldTable = &[
    ("id", Leaf::PersonId, Type::Long),
    ("name", Leaf::PersonName, Type::Text),
    ("emailAddress", Leaf::PersonEmail, Type::Text),
    ("creditCard", Leaf::PersonCreditCard, Type::Text),
    ("city", Leaf::PersonCity, Type::Text),
    ("state", Leaf::PersonState, Type::Text),
    ("dateTime", Leaf::DateTime, Type::Time),
    ("extra", Leaf::PersonExtra, Type::Text),
];

const AUCTION: &FieldTable = &[
    ("id", Leaf::AuctionId, Type::Long),
    ("itemName", Leaf::AuctionItemName, Type::Text),
    ("description", Leaf::AuctionDescription, Type::Text),
    ("initialBid", Leaf::AuctionInitialBid, Type::Long),
    ("reserve", Leaf::AuctionReserve, Type::Long),
    ("dateTime", Leaf::DateTime, Type::Time),
    ("expires", Leaf::AuctionExpires, Type::Time),
    ("seller", Leaf::AuctionSeller, Type::Long),
    ("category", Leaf::AuctionCategory, Type::Long),
    ("extra", Leaf::AuctionExtra, Type::Text),
];

const BID: &FieldTable = &[
    ("auction", Leaf::BidAuction, Type::Long),
    ("bidder", Leaf::BidBidder, Type::Long),
    ("price", Leaf::BidPrice, Type::Long),
    ("channel", Leaf::BidChannel, Type::Text),
    ("url", Leaf::BidUrl, Type::Text),
    ("dateTime", Leaf::DateTime, Type::Time),
    ("extra", Leaf::BidExtra, Type::Text),
];

impl EventKind {
    const fn fields(self) -> &'static FieldTable {
        match self {
            Self::Person => PERSON,
            Self::Auction => AUCTION,
            Self::Bid => BID,
        }
    }

    /// The field of that name.
    pub(crate) fn leaf(self, name: &str) -> Option<Leaf> {
        self.fields().iter().find(|f| f.0 == name).map(|f| f.1)
    }

    fn data_type(self) -> DataType {
        DataType::Struct(self.fields().iter().map(|(name, _, ty)| Field::new(*name, ty.arrow(), true)).collect())
    }
}

/// All columns in order.
pub(crate) fn columns() -> Vec<ColumnDef> {
    let column = |name: &str, data_type| ColumnDef { name: name.to_owned(), data_type, nullable: true, computed: None };
    let kinds = EventKind::ALL.map(|kind| column(kind.column(), kind.data_type()));
    std::iter::once(column("event_type", DataType::Int32)).chain(kinds).collect()
}

/// Fills in the columns of a table that declares none that are read from the source; else checks that each declared one
/// is one of the generator's, with its type. A table may leave columns and fields out.
pub(crate) fn check(table: &mut TableDef) -> Result<()> {
    let ours = columns();
    if table.columns.iter().all(|c| c.computed.is_some()) {
        table.columns.splice(0..0, ours);
        return Ok(());
    }
    for column in table.columns.iter().filter(|c| c.computed.is_none()) {
        let Some(expected) = ours.iter().find(|c| c.name == column.name) else {
            let names: Vec<&str> = ours.iter().map(|c| c.name.as_str()).collect();
            return Err(unknown(&column.name, &names));
        };
        check_type(&column.name, &column.data_type, &expected.data_type)?;
    }
    Ok(())
}

fn check_type(path: &str, declared: &DataType, expected: &DataType) -> Result<()> {
    let (DataType::Struct(declared_fields), DataType::Struct(fields)) = (declared, expected) else {
        if declared == expected {
            return Ok(());
        }
        return Err(StreamError::invalid(format!(
            "column {path} of a nexmark table: expected {}, got {}; declare that type, or no columns at all to get \
             them from the connector",
            type_name(expected),
            type_name(declared)
        )));
    };
    for field in declared_fields {
        let path = format!("{path}.{}", field.name());
        match find(fields, field.name()) {
            Some(expected) => check_type(&path, field.data_type(), expected.data_type())?,
            None => return Err(unknown(&path, &fields.iter().map(|f| f.name().as_str()).collect::<Vec<_>>())),
        }
    }
    Ok(())
}

fn find<'a>(fields: &'a Fields, name: &str) -> Option<&'a Arc<Field>> {
    fields.iter().find(|f| f.name() == name)
}

fn unknown(path: &str, known: &[&str]) -> StreamError {
    StreamError::Unknown {
        kind: "column".into(),
        name: path.to_owned(),
        position: None,
        hint: format!("a nexmark table has {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: Vec<ColumnDef>) -> TableDef {
        TableDef {
            name: "t".into(),
            columns,
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: [].into(),
            statement: String::new(),
        }
    }

    #[test]
    fn a_table_without_columns_gets_all_before_its_computed_ones() {
        let computed = ColumnDef {
            name: "dateTime".into(),
            data_type: DataType::Null,
            nullable: true,
            computed: Some("x".into()),
        };
        let mut table = table(vec![computed]);
        check(&mut table).unwrap();
        let names: Vec<&str> = table.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["event_type", "person", "auction", "bid", "dateTime"]);
    }

    #[test]
    fn a_table_may_declare_fewer_columns_and_fields() {
        let mut columns = columns();
        columns.truncate(1);
        let bid = DataType::Struct([Field::new("price", DataType::Int64, true)].into_iter().collect());
        columns.push(ColumnDef { name: "bid".into(), data_type: bid, nullable: true, computed: None });
        let mut table = table(columns.clone());
        check(&mut table).unwrap();
        assert_eq!(table.columns, columns);
    }

    #[test]
    fn a_column_with_another_name_or_type_is_refused() {
        let mut wrong_type = columns();
        wrong_type[0].data_type = DataType::Int64;
        let error = check(&mut table(wrong_type)).unwrap_err().to_string();
        assert!(error.starts_with("column event_type of a nexmark table: expected INT, got BIGINT"), "{error}");
        let mut wrong_name = columns();
        wrong_name[3].name = "bids".into();
        let error = check(&mut table(wrong_name)).unwrap_err().to_string();
        assert_eq!(error, "column bids does not exist; a nexmark table has event_type, person, auction, bid");
    }
}
