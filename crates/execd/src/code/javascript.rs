//! Turns a cell of JavaScript or TypeScript into a script that the Node driver can evaluate.
//!
//! Cells are written as one would write them at a prompt: with `import`, top-level `await`,
//! types, names that are declared again in a later cell, and a last expression whose value is
//! wanted. A plain script allows none of that. So types are stripped and the cell is put into an
//! async function, with every name that it declares lifted to the global scope:
//!
//! ```text
//!   const { a } = f()          var a;(async () => {({ a } = f());
//!   await g(a)           ──▶   return [await g(a)]
//!                              })
//! ```
//!
//! Statements keep their lines, so that errors name the line the user sees. Nothing is checked
//! that Node checks itself.

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    BindingPattern, ImportDeclaration, ImportDeclarationSpecifier, Program, Statement,
    VariableDeclaration, VariableDeclarationKind,
};
use oxc_codegen::Codegen;
use oxc_parser::Parser;
use oxc_semantic::SemanticBuilder;
use oxc_span::{GetSpan as _, SourceType, Span};
use oxc_transformer::{TransformOptions, Transformer};

/// What the cell is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    JavaScript,
    TypeScript,
}

/// Why a text is not a cell.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct SyntaxError {
    pub(super) message: String,
    /// The place, as lines to print.
    pub(super) lines: Vec<String>,
}

/// A script that evaluates to a function which runs the cell.
pub(super) fn to_script(code: &str, dialect: Dialect) -> Result<String, SyntaxError> {
    match dialect {
        Dialect::JavaScript => wrap(code),
        Dialect::TypeScript => wrap(&strip_types(code)?),
    }
}

fn strip_types(code: &str) -> Result<String, SyntaxError> {
    let allocator = Allocator::default();
    let mut program = parse(&allocator, code, SourceType::ts().with_module(true))?;
    let scoping = SemanticBuilder::new()
        .with_enum_eval(true)
        .build(&program)
        .semantic
        .into_scoping();
    let mut options = TransformOptions::default();
    // What this cell does not use a later one may.
    options.typescript.only_remove_type_imports = true;
    let done = Transformer::new(&allocator, Path::new("cell.ts"), &options)
        .build_with_scoping(scoping, &mut program);
    if let Some(first) = done.diagnostics.first() {
        return Err(SyntaxError {
            message: first.message.to_string(),
            lines: Vec::new(),
        });
    }
    Ok(Codegen::new().build(&program).code)
}

fn wrap(code: &str) -> Result<String, SyntaxError> {
    let allocator = Allocator::default();
    let program = parse(&allocator, code, SourceType::mjs())?;
    let mut cell = Cell {
        code,
        names: Vec::new(),
        functions: Vec::new(),
        body: String::new(),
    };
    cell.rewrite(&program)?;
    let names = match cell.names.is_empty() {
        true => String::new(),
        false => format!("var {};", cell.names.join(",")),
    };
    let functions: String = cell
        .functions
        .iter()
        .map(|name| format!("globalThis.{name}={name};"))
        .collect();
    Ok(format!(
        "{names}(async()=>{{{functions}{}\nreturn []}})",
        cell.body
    ))
}

fn parse<'a>(
    allocator: &'a Allocator,
    code: &'a str,
    kind: SourceType,
) -> Result<Program<'a>, SyntaxError> {
    let parsed = Parser::new(allocator, code, kind).parse();
    match parsed.diagnostics.first() {
        None => Ok(parsed.program),
        Some(first) => {
            let at = first.labels.iter().next().map(|label| label.offset());
            Err(SyntaxError {
                message: first.message.to_string(),
                lines: at.map(|at| place(code, at as usize)).unwrap_or_default(),
            })
        }
    }
}

/// The line around an offset, with a mark under the character.
fn place(code: &str, offset: usize) -> Vec<String> {
    let before = code.get(..offset).unwrap_or(code);
    let number = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count();
    let line = code.lines().nth(number - 1).unwrap_or_default();
    vec![
        format!("<cell>:{number}"),
        line.to_owned(),
        format!("{}^", " ".repeat(column)),
    ]
}

struct Cell<'c> {
    code: &'c str,
    /// Lifted to the global scope.
    names: Vec<String>,
    /// Functions are hoisted where they stand and made global at the start.
    functions: Vec<String>,
    body: String,
}

impl<'c> Cell<'c> {
    fn rewrite(&mut self, program: &Program<'_>) -> Result<(), SyntaxError> {
        let mut at = 0;
        // A cell that is only a string is a directive to the parser and a value to its author.
        let lone = program
            .directives
            .last()
            .filter(|_| program.body.is_empty());
        if let Some(directive) = lone {
            self.copy(at, directive.span.start);
            self.body.push_str("return [");
            self.push(directive.expression.span);
            self.body.push(']');
            return Ok(());
        }
        let last = program.body.len().wrapping_sub(1);
        for (index, statement) in program.body.iter().enumerate() {
            let span = statement.span();
            self.copy(at, span.start);
            self.statement(statement, index == last)?;
            at = span.end;
        }
        self.copy(at, u32::try_from(self.code.len()).unwrap_or(u32::MAX));
        Ok(())
    }

    fn statement(&mut self, statement: &Statement<'_>, is_last: bool) -> Result<(), SyntaxError> {
        match statement {
            Statement::ImportDeclaration(import) => self.import(import),
            Statement::VariableDeclaration(declaration) => self.variables(declaration),
            Statement::FunctionDeclaration(function) => {
                self.push(function.span);
                if let Some(name) = &function.id {
                    self.functions.push(name.name.to_string());
                }
            }
            Statement::ClassDeclaration(class) => {
                let name = class.id.as_ref().map(|name| name.name.to_string());
                if let Some(name) = name {
                    self.body.push_str(&format!("{name}="));
                    self.names.push(name);
                }
                self.push(class.span);
                self.body.push(';');
            }
            Statement::ExpressionStatement(statement) if is_last => {
                self.body.push_str("return [(");
                self.push(statement.expression.span());
                self.body.push_str(")]");
            }
            other => {
                let text = self.text(other.span());
                if text.starts_with("export") {
                    return Err(SyntaxError {
                        message: "a cell has nothing to export to; leave out `export`".to_owned(),
                        lines: place(self.code, other.span().start as usize),
                    });
                }
                self.body.push_str(text);
            }
        }
        Ok(())
    }

    /// `import d, { a as b } from "m"` becomes assignments from a dynamic import.
    fn import(&mut self, import: &ImportDeclaration<'_>) {
        let source = self.text(import.source.span).to_owned();
        let mut named = Vec::new();
        let mut namespace = None;
        for specifier in import.specifiers.iter().flatten() {
            let (imported, local) = match specifier {
                ImportDeclarationSpecifier::ImportSpecifier(specifier) => (
                    self.text(specifier.imported.span()).to_owned(),
                    &specifier.local,
                ),
                ImportDeclarationSpecifier::ImportDefaultSpecifier(specifier) => {
                    ("default".to_owned(), &specifier.local)
                }
                ImportDeclarationSpecifier::ImportNamespaceSpecifier(specifier) => {
                    namespace = Some(specifier.local.name.to_string());
                    self.names.push(specifier.local.name.to_string());
                    continue;
                }
            };
            named.push(format!("{imported}:{}", local.name));
            self.names.push(local.name.to_string());
        }
        if let Some(name) = &namespace {
            self.body
                .push_str(&format!("{name}=await import({source});"));
        }
        if !named.is_empty() {
            self.body.push_str(&format!(
                "({{{}}}=await import({source}));",
                named.join(",")
            ));
        } else if namespace.is_none() {
            self.body.push_str(&format!("await import({source});"));
        }
    }

    fn variables(&mut self, declaration: &VariableDeclaration<'_>) {
        if matches!(
            declaration.kind,
            VariableDeclarationKind::Using | VariableDeclarationKind::AwaitUsing
        ) {
            // These end with the cell by their meaning.
            self.push(declaration.span);
            return;
        }
        for declarator in &declaration.declarations {
            collect_names(&declarator.id, &mut self.names);
            match &declarator.init {
                Some(init) => {
                    self.body.push('(');
                    self.push(declarator.id.span());
                    self.body.push_str(" = ");
                    self.push(init.span());
                    self.body.push_str(");");
                }
                // `var x` again keeps the value, `let x` does not.
                None if declaration.kind == VariableDeclarationKind::Let => {
                    self.push(declarator.id.span());
                    self.body.push_str(" = undefined;");
                }
                None => {}
            }
        }
    }

    fn text(&self, span: Span) -> &'c str {
        &self.code[span.start as usize..span.end as usize]
    }

    fn push(&mut self, span: Span) {
        let text = self.text(span);
        self.body.push_str(text);
    }

    fn copy(&mut self, from: u32, to: u32) {
        let text = &self.code[from as usize..to as usize];
        self.body.push_str(text);
    }
}

fn collect_names(pattern: &BindingPattern<'_>, names: &mut Vec<String>) {
    match pattern {
        BindingPattern::BindingIdentifier(identifier) => names.push(identifier.name.to_string()),
        BindingPattern::ObjectPattern(object) => {
            for property in &object.properties {
                collect_names(&property.value, names);
            }
            if let Some(rest) = &object.rest {
                collect_names(&rest.argument, names);
            }
        }
        BindingPattern::ArrayPattern(array) => {
            for element in array.elements.iter().flatten() {
                collect_names(element, names);
            }
            if let Some(rest) = &array.rest {
                collect_names(&rest.argument, names);
            }
        }
        BindingPattern::AssignmentPattern(assignment) => collect_names(&assignment.left, names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dialect: Dialect, code: &str, expected: &str) {
        assert_eq!(to_script(code, dialect).unwrap(), expected, "{code}");
    }

    #[test]
    fn the_last_expression_is_returned() {
        check(
            Dialect::JavaScript,
            "1 + 1",
            "(async()=>{return [(1 + 1)]\nreturn []})",
        );
        check(
            Dialect::JavaScript,
            "a;\nb;",
            "(async()=>{a;\nreturn [(b)]\nreturn []})",
        );
        check(
            Dialect::JavaScript,
            "'text'",
            "(async()=>{return ['text']\nreturn []})",
        );
        check(Dialect::JavaScript, "", "(async()=>{\nreturn []})");
    }

    #[test]
    fn declarations_are_lifted_and_may_come_again() {
        check(
            Dialect::JavaScript,
            "const a = 1, { b, c: [d = 2, ...e] } = f();",
            "var a,b,d,e;(async()=>{(a = 1);({ b, c: [d = 2, ...e] } = f());\nreturn []})",
        );
        check(
            Dialect::JavaScript,
            "let x",
            "var x;(async()=>{x = undefined;\nreturn []})",
        );
        check(
            Dialect::JavaScript,
            "class A {}",
            "var A;(async()=>{A=class A {};\nreturn []})",
        );
        check(
            Dialect::JavaScript,
            "function f() { return 1 }\nf()",
            "(async()=>{globalThis.f=f;function f() { return 1 }\nreturn [(f())]\nreturn []})",
        );
    }

    #[test]
    fn imports_become_dynamic() {
        check(
            Dialect::JavaScript,
            "import d, { a as b } from 'm'\nimport * as n from \"n\"\nimport 's'",
            "var d,b,n;(async()=>{({default:d,a:b}=await import('m'));\nn=await import(\"n\");\nawait import('s');\nreturn []})",
        );
    }

    #[test]
    fn types_are_stripped_and_unused_imports_stay() {
        let script = to_script(
            "import { readFileSync } from 'fs'\ninterface P { x: number }\nenum E { A = 3 }\nconst p: P = { x: E.A }\np.x as number",
            Dialect::TypeScript,
        )
        .unwrap();
        assert!(script.contains("readFileSync"), "{script}");
        assert!(
            !script.contains("interface") && !script.contains("number"),
            "{script}"
        );
        assert!(script.contains("return [("), "{script}");
    }

    #[test]
    fn a_syntax_error_names_the_place() {
        let error = to_script("let a = 1\nlet = = 2", Dialect::JavaScript).unwrap_err();
        assert!(!error.message.is_empty());
        assert_eq!(error.lines[0], "<cell>:2");
        let error = to_script("export const a = 1", Dialect::JavaScript).unwrap_err();
        assert!(error.message.contains("export"));
    }
}
