// Text in URLs.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace OpenSandbox
{
    /// <summary>Paths and queries.</summary>
    internal static class Encoded
    {
        /// <summary>An id as a segment of a path. What would lead to another path is refused.</summary>
        internal static string Segment(string id)
        {
            if (id == "" || id == "." || id == "..") throw new InvalidArgumentException($"\"{id}\" is not an id");
            return Text(id);
        }

        /// <summary>A query from pairs; those without a value are left out.</summary>
        internal static string Query(params (string Name, object? Value)[] pairs) => Query((IEnumerable<(string, object?)>)pairs);

        /// <summary>A query from pairs; those without a value are left out.</summary>
        internal static string Query(IEnumerable<(string Name, object? Value)> pairs)
        {
            var query = new StringBuilder();
            foreach (var (name, value) in pairs)
            {
                if (value == null) continue;
                var text = value is bool flag ? (flag ? "true" : "false") : Convert.ToString(value, CultureInfo.InvariantCulture);
                query.Append(query.Length == 0 ? "" : "&").Append(Text(name)).Append('=').Append(Text(text ?? ""));
            }
            return query.ToString();
        }

        /// <summary>Everything but letters, digits and <c>-_.~</c>, which RFC 3986 leaves alone, is encoded.</summary>
        internal static string Text(string text)
        {
            var encoded = new StringBuilder(text.Length);
            foreach (var value in Encoding.UTF8.GetBytes(text))
            {
                var character = (char)value;
                var isPlain = (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z')
                    || (character >= '0' && character <= '9') || "-_.~".IndexOf(character) >= 0;
                if (isPlain) encoded.Append(character);
                else encoded.Append('%').Append(value.ToString("X2", CultureInfo.InvariantCulture));
            }
            return encoded.ToString();
        }
    }
}
