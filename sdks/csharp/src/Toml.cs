// As much of TOML 1.0 as the command line's settings use: tables, dotted keys, strings of one line, numbers,
// booleans, and arrays and inline tables of those. Dates and strings of several lines are refused.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text.RegularExpressions;

namespace OpenSandbox
{
    /// <summary>Reads a settings file. Values are string, double, bool, List of object and Dictionary of string and
    /// object; what is wrong is a FormatException that names the line.</summary>
    internal sealed class Toml
    {
        private static readonly Regex Blanks = Pattern(@"[ \t]*");
        private static readonly Regex BlankLines = Pattern(@"(?:[ \t\r\n]|#[^\n]*)*");
        private static readonly Regex LineEnd = Pattern(@"[ \t]*(?:#[^\n]*)?(?:\r?\n|\z)");
        private static readonly Regex BareKey = Pattern("[A-Za-z0-9_-]+");
        private static readonly Regex Word = Pattern(@"[A-Za-z0-9+\-_.:]+");
        private static readonly Regex Literal = Pattern(@"'[^'\n]*'");
        private static readonly Regex Basic = Pattern(@"""(?:[^""\\\n]|\\.)*""");
        private static readonly Regex Escape = new Regex(@"\\(u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)", RegexOptions.Compiled);
        private static readonly Regex Number = new Regex(@"^[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$");

        private readonly string _text;
        private int _at;

        private Toml(string text)
        {
            _text = text;
        }

        internal static Dictionary<string, object> Parse(string text)
        {
            var root = new Dictionary<string, object>();
            var table = root;
            var reader = new Toml(text);
            while (true)
            {
                reader.Match(BlankLines);
                if (reader._at >= text.Length) return root;
                if (reader.Take("[[")) throw reader.Error("arrays of tables are not supported here");
                if (reader.Take("["))
                {
                    table = reader.Descend(root, reader.Keys());
                    reader.Expect("]");
                }
                else
                {
                    reader.KeyValue(table);
                }
                if (reader.Match(LineEnd) == null) throw reader.Error("expected the end of the line");
            }
        }

        private static Regex Pattern(string pattern) => new Regex($@"\G{pattern}");

        private FormatException Error(string message)
        {
            var line = 1;
            for (var at = 0; at < _at && at < _text.Length; at++) if (_text[at] == '\n') line++;
            return new FormatException($"line {line}: {message}");
        }

        private string? Match(Regex pattern)
        {
            var found = pattern.Match(_text, _at);
            if (!found.Success) return null;
            _at += found.Length;
            return found.Value;
        }

        private bool Take(string text)
        {
            if (string.CompareOrdinal(_text, _at, text, 0, text.Length) != 0) return false;
            _at += text.Length;
            return true;
        }

        private void Expect(string text)
        {
            Match(Blanks);
            if (!Take(text)) throw Error($"expected \"{text}\"");
        }

        private void KeyValue(Dictionary<string, object> table)
        {
            var keys = Keys();
            Expect("=");
            var last = keys[keys.Count - 1];
            keys.RemoveAt(keys.Count - 1);
            if (!Descend(table, keys).TryAdd(last, Value())) throw Error($"{last} is set twice");
        }

        private Dictionary<string, object> Descend(Dictionary<string, object> table, List<string> keys)
        {
            foreach (var key in keys)
            {
                if (!table.TryGetValue(key, out var next)) table[key] = next = new Dictionary<string, object>();
                table = next as Dictionary<string, object> ?? throw Error($"{key} is not a table");
            }
            return table;
        }

        /// <summary>A dotted key.</summary>
        private List<string> Keys()
        {
            var keys = new List<string>();
            do
            {
                Match(Blanks);
                keys.Add(Match(BareKey) ?? Text());
                Match(Blanks);
            }
            while (Take("."));
            return keys;
        }

        private object Value()
        {
            Match(Blanks);
            if (Take("[")) return Array();
            if (Take("{")) return InlineTable();
            var word = Match(Word);
            if (word == null) return Text();
            if (word == "true" || word == "false") return word == "true";
            var digits = word.Replace("_", "");
            if (Number.IsMatch(digits)) return double.Parse(digits, CultureInfo.InvariantCulture);
            throw Error($"\"{word}\" is not a value; text stands in quotes");
        }

        private string Text()
        {
            if (Take("\"\"\"") || Take("'''")) throw Error("text of several lines is not supported here");
            if (Match(Literal) is string literal) return literal.Substring(1, literal.Length - 2);
            var basic = Match(Basic) ?? throw Error("expected text in quotes");
            return Escape.Replace(basic.Substring(1, basic.Length - 2), found => Meant(found.Groups[1].Value));
        }

        private string Meant(string escape)
        {
            if (escape.Length > 1)
            {
                var code = uint.Parse(escape.Substring(1), NumberStyles.HexNumber, CultureInfo.InvariantCulture);
                var isCharacter = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
                return isCharacter ? char.ConvertFromUtf32((int)code) : throw Error($"\\{escape} is not a character");
            }
            var at = "btnfr\"\\".IndexOf(escape, StringComparison.Ordinal);
            return at >= 0 ? "\b\t\n\f\r\"\\"[at].ToString() : throw Error($"\\{escape} is not an escape");
        }

        private List<object> Array()
        {
            var items = new List<object>();
            while (true)
            {
                Match(BlankLines);
                if (Take("]")) return items;
                items.Add(Value());
                Match(BlankLines);
                if (Take("]")) return items;
                Expect(",");
            }
        }

        private Dictionary<string, object> InlineTable()
        {
            var table = new Dictionary<string, object>();
            Match(Blanks);
            if (Take("}")) return table;
            do
            {
                KeyValue(table);
                Match(Blanks);
            }
            while (Take(","));
            Expect("}");
            return table;
        }
    }
}
