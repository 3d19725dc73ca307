//! The types of a tenant's own, by name and number: enumerations, composite types, and the rows of tables and views.

use std::sync::Arc;

use savanna_tenants_values::{
    composite::{Attribute, Composite},
    enumeration::Enumeration,
    own::OwnTypes,
    types::{Type, composite_of_array},
    value::{Context, style::Style},
};

use super::{Catalog, Definition, Domain, Name, PUBLIC, Table, view::View};

impl Catalog {
    /// The types of the tenant's own.
    pub fn own_types(&self) -> &Arc<OwnTypes> {
        &self.own
    }

    /// The enumeration of a name.
    pub fn enumeration(&self, name: &Name) -> Option<&Arc<Enumeration>> {
        self.own.enumeration(self.own_number(name)?)
    }

    /// The composite type of a name; not the rows of a table.
    pub fn composite(&self, name: &Name) -> Option<&Arc<Composite>> {
        self.own.composite(self.own_number(name)?).filter(|composite| !self.is_relation(composite.id))
    }

    /// The domain of a name.
    pub fn domain(&self, name: &Name) -> Option<&Arc<Domain>> {
        self.domains.get(&self.own_number(name)?)
    }

    /// The domain of a number.
    pub fn domain_by_id(&self, id: u32) -> Option<&Arc<Domain>> {
        self.domains.get(&id)
    }

    /// All domains.
    pub fn domains(&self) -> impl Iterator<Item = &Arc<Domain>> {
        self.domains.values()
    }

    /// The type of a name; not a domain.
    pub fn own_type(&self, name: &Name) -> Option<Type> {
        self.type_of_number(self.own_number(name)?)
    }

    /// The number of the type of a name. Those in `public` are found without it, whatever the search path.
    pub fn own_number(&self, name: &Name) -> Option<u32> {
        let is_type = |id: &u32| self.own_name(*id).is_some_and(|(_, own)| own == name.name);
        let public = || self.in_schema(PUBLIC, &name.name).filter(is_type);
        self.find(name).filter(is_type).or_else(|| if name.schema.is_none() { public() } else { None })
    }

    fn type_of_number(&self, id: u32) -> Option<Type> {
        let composite = || self.own.composite(id).map(|of| Type::Composite(of.id));
        self.own.enumeration(id).map(|of| Type::Enum(of.id)).or_else(composite)
    }

    /// The number of the schema of a type, and its name.
    pub fn own_name(&self, id: u32) -> Option<(u32, &str)> {
        let composite = || self.own.composite(id).map(|of| (of.schema, of.name.as_str()));
        let domain = || self.domains.get(&id).map(|of| (of.schema, of.name.as_str()));
        self.own.enumeration(id).map(|of| (of.schema, of.name.as_str())).or_else(composite).or_else(domain)
    }

    /// All enumerations.
    pub fn enumerations(&self) -> impl Iterator<Item = &Arc<Enumeration>> {
        self.own.enumerations()
    }

    /// All composite types, but for the rows of tables and views.
    pub fn composites(&self) -> impl Iterator<Item = &Arc<Composite>> {
        self.own.composites().filter(|composite| !self.is_relation(composite.id))
    }

    /// Whether a table or view has a number.
    fn is_relation(&self, id: u32) -> bool {
        self.tables.contains_key(&id) || self.views.contains_key(&id)
    }

    /// What texts mean here, in a style.
    pub fn context(&self, style: Style) -> Context<'_> {
        Context { own: &self.own, style }
    }

    /// The type with a number, those of this tenant among them.
    pub fn type_of_oid(&self, oid: u32) -> Option<Type> {
        let of_enumeration = || self.own.enumeration(oid.checked_sub(1)?).and_then(|of| Type::Enum(of.id).array());
        let of_composite =
            || self.own.composite(composite_of_array(oid)?).and_then(|of| Type::Composite(of.id).array());
        Type::of_oid(oid).or_else(|| self.type_of_number(oid)).or_else(of_enumeration).or_else(of_composite)
    }

    /// The name of a type without length or precision, as messages have it.
    pub fn type_name(&self, of: Type) -> String {
        match of {
            Type::Enum(id) | Type::Composite(id) => {
                self.own_name(id).map_or_else(|| of.name(), |(schema, name)| self.written(schema, name))
            }
            Type::Array(_) => format!("{}[]", of.element().map(|element| self.type_name(element)).unwrap_or_default()),
            other => other.base_name(),
        }
    }

    /// Takes over a composite type, or one that changed: tables store values of it.
    pub(super) fn put_composite(&mut self, composite: Composite) {
        let id = composite.id;
        Arc::make_mut(&mut self.own).add_composite(composite);
        let stale: Vec<u32> = self.nested.iter().copied().filter(|table| self.stores(*table, id)).collect();
        for table in stale {
            if let Some(table) = self.tables.get_mut(&table) {
                *table = Arc::new(Table::new(table.definition.clone(), &self.own));
            }
        }
    }

    /// Whether a table stores values of a composite type, perhaps within others.
    fn stores(&self, table: u32, composite: u32) -> bool {
        let columns = self.tables.get(&table).into_iter().flat_map(|table| table.live_columns());
        let mut met: Vec<u32> = columns.filter_map(|(_, column)| column.of.composite()).collect();
        let mut at = 0;
        while let Some(id) = met.get(at).copied() {
            let inner = self.own.composite(id).into_iter().flat_map(|of| of.live()).filter_map(|of| of.of.composite());
            let new: Vec<u32> = inner.filter(|id| !met.contains(id)).collect();
            met.extend(new);
            at += 1;
        }
        met.contains(&composite)
    }
}

/// The type of a table's rows.
pub fn rows_of_table(table: &Definition) -> Composite {
    let attribute = |column: &super::Column| Attribute {
        dropped: column.dropped,
        ..Attribute::new(column.name.clone(), column.of)
    };
    let attributes = table.columns.iter().map(attribute).collect();
    Composite { id: table.id, name: table.name.clone(), schema: table.schema, attributes, comment: None }
}

/// The type of a view's rows.
pub fn rows_of_view(view: &View) -> Composite {
    let attributes = view.columns.iter().map(|(name, of)| Attribute::new(name.clone(), *of)).collect();
    Composite { id: view.id, name: view.name.clone(), schema: view.schema, attributes, comment: None }
}
