//! A type of the product, or of a crate in `dev/`, has at most [`METHODS_MAX`] methods and [`FIELDS_MAX`] fields: a
//! larger type has a second subject, which deserves a type of its own.
//!
//! All `impl` blocks of a type count, in whatever file, but not those of traits.

use super::Finding;
use super::Tree;
use super::imports::roots;
use super::modules::Modules;
use crate::step::Result;
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{Fields, ImplItem, ItemImpl, ItemStruct, Type};

const METHODS_MAX: usize = 35;
const FIELDS_MAX: usize = 15;

#[derive(Default)]
struct Size {
    methods: usize,
    fields: usize,
}

/// Number of methods and fields of the types of a crate.
#[derive(Default)]
struct Sizes {
    declared: BTreeMap<(String, String), Size>,
    /// Methods in `impl` blocks: for each block the module's file, the type's name, and the number of methods.
    methods: Vec<(String, String, usize)>,
    file: String,
}

impl<'m> Visit<'m> for Sizes {
    fn visit_item_struct(&mut self, item: &'m ItemStruct) {
        let fields = if let Fields::Named(fields) = &item.fields { fields.named.len() } else { 0 };
        self.declared.insert((self.file.clone(), item.ident.to_string()), Size { fields, methods: 0 });
    }

    fn visit_item_impl(&mut self, block: &'m ItemImpl) {
        if let Type::Path(of) = &*block.self_ty
            && let Some(name) = of.path.segments.last().filter(|_| block.trait_.is_none())
        {
            let methods = block.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
            self.methods.push((self.file.clone(), name.ident.to_string(), methods));
        }
        visit::visit_item_impl(self, block);
    }
}

/// # Errors
/// A file is not valid Rust.
pub fn check(tree: &Tree) -> Result<Finding> {
    let mut broken = Vec::new();
    for root in roots(tree, "crates/").chain(roots(tree, "dev/")) {
        broken.extend(large(&Modules::from_root(tree, root)?));
    }
    broken.sort();
    Ok(Finding { rule: format!("a type has at most {METHODS_MAX} methods and {FIELDS_MAX} fields"), broken })
}

fn large(modules: &Modules) -> Vec<String> {
    let mut sizes = Sizes::default();
    for module in modules.0.values() {
        sizes.file.clone_from(&module.file);
        sizes.visit_file(&module.source.file);
    }
    for (file, name, methods) in std::mem::take(&mut sizes.methods) {
        // The type may be declared in another file than its methods; of several types with this name, the one in the
        // nearest file is meant.
        let same = sizes.declared.iter_mut().filter(|((_, declared), _)| *declared == name);
        if let Some((_, size)) = same.max_by_key(|((at, _), _)| (*at == file, common(at, &file))) {
            size.methods += methods;
        }
    }
    let is_large = |size: &Size| size.methods > METHODS_MAX || size.fields > FIELDS_MAX;
    let large = sizes.declared.iter().filter(|(_, size)| is_large(size));
    large
        .map(|((file, name), Size { methods, fields })| {
            format!("{file}: {name} has {methods} methods, {fields} fields")
        })
        .collect()
}

/// The length of the common part of two files' paths.
fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(main: &str, part: &str) -> Vec<String> {
        let tree = Tree::from_files(&[
            ("crates/a/src/lib.rs", "mod b; mod c;"),
            ("crates/a/src/b.rs", main),
            ("crates/a/src/c.rs", part),
        ]);
        check(&tree).expect("valid Rust").broken
    }

    fn methods(count: usize) -> String {
        (0..count).map(|n| format!("fn f{n}(&self) {{}}")).collect()
    }

    #[test]
    fn methods_of_all_files_count_and_those_of_traits_do_not() {
        let own = format!("pub struct A {{ x: u8 }} impl A {{ {} }} impl T for A {{ {} }}", methods(30), methods(30));
        let part =
            |count| format!("use super::b::A; impl A {{ {} }} struct B; impl B {{ fn f(&self) {{}} }}", methods(count));
        assert!(broken(&own, &part(5)).is_empty());
        assert_eq!(broken(&own, &part(6)), ["crates/a/src/b.rs: A has 36 methods, 1 fields"]);
        assert!(broken(&own, &part(6).replace("impl A", "#[cfg(test)] impl A")).is_empty());
    }

    #[test]
    fn two_types_of_one_name_are_two() {
        let one = format!("struct A; impl A {{ {} }}", methods(20));
        assert!(broken(&one, &one).is_empty());
    }

    #[test]
    fn fields_count() {
        let fields = |count| (0..count).map(|n| format!("f{n}: u8,")).collect::<String>();
        assert!(broken(&format!("struct A {{ {} }}", fields(15)), "").is_empty());
        assert_eq!(broken(&format!("struct A {{ {} }}", fields(16)), "").len(), 1);
    }
}
