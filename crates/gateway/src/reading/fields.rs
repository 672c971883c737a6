//! The fields of a JSON object, in their order and with the spelling of their values.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// The maximum number of fields of an object that is assembled. Fields are found by a linear search.
const MAX_FIELDS: usize = 256;

/// The fields of an object.
///
/// A response is assembled from the provider's own text, because a number or a key order that is written again can
/// differ.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// Returns the value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| &**value)
    }

    /// Reads the value of a field. `None` if the field is absent or null.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> serde_json::Result<Option<T>> {
        let value = self.get(name).filter(|value| value.get() != "null");
        value
            .map(|value| serde_json::from_str(value.get()))
            .transpose()
    }

    /// Sets a field at its place, or at the end if the object has no such field.
    pub(crate) fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(field, _)| field == name) {
            Some(field) => field.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Sets a field to a value that becomes JSON.
    pub(crate) fn set_value(
        &mut self,
        name: &str,
        value: &impl Serialize,
    ) -> serde_json::Result<()> {
        self.set(name, to_raw_value(value)?);
        Ok(())
    }

    /// Removes a field.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| field != name);
    }

    /// Sets all fields of another object. A null changes no field that exists.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, value) in other.0 {
            if value.get() != "null" || self.get(&name).is_none() {
                self.set(&name, value);
            }
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    if fields.len() == MAX_FIELDS {
                        return Err(A::Error::custom("the object has too many fields"));
                    }
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
