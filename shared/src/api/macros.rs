//! Macros that declare the enums and kinds of the typed API.

/// Declares a string enumeration of the API.
///
/// A value that this version does not know decodes to `Other` and is written back unchanged: one
/// unknown value in one field must not make the whole object unreadable. The schema lists the known
/// values, so the API server rejects misspelt ones. Absent and empty are the same, as in Go.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $text:literal ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
            /// A value that this version does not know.
            Other(String),
        }

        impl $name {
            /// The values that the schema accepts.
            pub const KNOWN: &'static [&'static str] = &[$($text),+];

            /// Returns the value as in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $text, )+
                    Self::Other(text) => text,
                }
            }
        }

        impl Default for $name {
            /// Returns the empty value, as Go reads an absent field.
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $( $text => Self::$variant, )+
                    _ => Self::Other(text),
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                text.to_owned().into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": Self::KNOWN })
            }
        }
    };
}

/// Declares the object around a spec: the struct, its place in the API and its definition for the
/// API server.
///
/// kube's derive makes exactly one kind from each spec. Here `PropagationPolicy` and
/// `ClusterPropagationPolicy` share theirs, as do the two bindings. A kind whose fields are beside
/// `metadata` names one of them, and with `as` the type that has the schema of all.
macro_rules! resource {
    (
        $(#[doc = $doc:literal])*
        $kind:ident {
            group: $group:literal,
            version: $version:literal,
            plural: $plural:literal,
            scope: $scope:ident,
            $(#[$attribute:meta])*
            $body:ident: $spec:ty $(as $fields:ty)?,
            $( status: $status:ty, )?
            $( short_names: [$($short:literal),*], )?
            $( categories: [$($category:literal),*], )?
            $( columns: [$($column:expr),* $(,)?], )?
            $( rules: [$($rule:expr),* $(,)?], )?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $kind {
            /// Standard object metadata.
            #[serde(default)]
            pub metadata: kube::core::ObjectMeta,
            /// Desired state.
            #[serde(default)]
            $(#[$attribute])*
            pub $body: $spec,
            $(
                /// Observed state; `None` until it is first reported.
                #[serde(default)]
                pub status: Option<$status>,
            )?
        }

        impl $kind {
            /// Makes an object with a name and a desired state.
            pub fn new(name: &str, $body: $spec) -> Self {
                let mut object = Self { $body, ..Self::default() };
                object.metadata.name = Some(name.to_owned());
                object
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct(stringify!($kind), 5)?;
                object.serialize_field("apiVersion", concat!($group, "/", $version))?;
                object.serialize_field("kind", stringify!($kind))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field(stringify!($body), &self.$body)?;
                $(
                    if let Some(status) = &self.status {
                        let status: &$status = status;
                        object.serialize_field("status", status)?;
                    }
                )?
                object.end()
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = resource!(@scope $scope);

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }

        impl crate::api::definition::Defined for $kind {
            const DEFINITION: crate::api::definition::Definition =
                crate::api::definition::Definition {
                    group: $group,
                    version: $version,
                    kind: stringify!($kind),
                    plural: $plural,
                    scope: stringify!($scope),
                    description: concat!($($doc, "\n"),*),
                    body: resource!(@body $($fields)?),
                    spec: resource!(@schema $spec $(, $fields)?),
                    status: resource!(@status $($status)?),
                    short_names: &[$($($short),*)?],
                    categories: &[$($($category),*)?],
                    columns: &[$($($column),*)?],
                    rules: &[$($($rule),*)?],
                };
        }
    };
    (@scope Namespaced) => { kube::core::NamespaceResourceScope };
    (@scope Cluster) => { kube::core::ClusterResourceScope };
    (@body) => { crate::api::definition::Body::Spec };
    (@body $fields:ty) => { crate::api::definition::Body::Fields };
    (@schema $spec:ty) => { crate::api::definition::schema_of::<$spec> };
    (@schema $spec:ty, $fields:ty) => { crate::api::definition::schema_of::<$fields> };
    (@status) => { None };
    (@status $status:ty) => { Some(crate::api::definition::schema_of::<$status>) };
}

/// Makes a type a resource whose objects are of either of two kinds, one in namespaces and one of
/// the fleet: `either!([parameters] Type: Namespaced, Cluster)`, where the scope says which.
macro_rules! either {
    ([$($parameters:tt)*] $type:ty: $namespaced:ty, $cluster:ty) => {
        impl<$($parameters)*> kube::Resource for $type {
            type DynamicType = crate::api::scope::ResourceScope;
            type Scope = kube::core::DynamicResourceScope;

            fn kind(scope: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                scope.choose(
                    <$namespaced as kube::Resource>::kind(&()),
                    <$cluster as kube::Resource>::kind(&()),
                )
            }
            fn group(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$namespaced as kube::Resource>::group(&())
            }
            fn version(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$namespaced as kube::Resource>::version(&())
            }
            fn plural(scope: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                scope.choose(
                    <$namespaced as kube::Resource>::plural(&()),
                    <$cluster as kube::Resource>::plural(&()),
                )
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use {either, open_enum, resource};
