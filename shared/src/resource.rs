//! Types that hold a part of an object and are resources of its kind.

/// Makes a type a resource of another type's kind, with the metadata in its field `metadata`:
/// `resource_as!(Part as Whole)`, or `resource_as!(Part<K> as K, K)` for any kind `K`.
#[macro_export]
macro_rules! resource_as {
    ($part:ty as $whole:ty $(, $kind:ident)?) => {
        impl $(<$kind: $crate::k8s::Resource<DynamicType = ()>>)? $crate::k8s::Resource for $part {
            type DynamicType = <$whole as $crate::k8s::Resource>::DynamicType;
            type Scope = <$whole as $crate::k8s::Resource>::Scope;

            fn kind(of: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                <$whole as $crate::k8s::Resource>::kind(of)
            }
            fn group(of: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                <$whole as $crate::k8s::Resource>::group(of)
            }
            fn version(of: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                <$whole as $crate::k8s::Resource>::version(of)
            }
            fn api_version(of: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                <$whole as $crate::k8s::Resource>::api_version(of)
            }
            fn plural(of: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                <$whole as $crate::k8s::Resource>::plural(of)
            }
            fn meta(&self) -> &$crate::k8s::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut $crate::k8s::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
