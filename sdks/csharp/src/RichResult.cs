// What code shows: values in every form they have, and the forms that programs use as types.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Net;
using System.Text;
using System.Text.Json;
using System.Text.RegularExpressions;

namespace OpenSandbox
{
    /// <summary>The richest form of a <see cref="RichResult"/>.</summary>
    public enum ResultKind
    {
        /// <summary>A picture.</summary>
        Figure,

        /// <summary>Rows of cells.</summary>
        Table,

        /// <summary>Text.</summary>
        Text,

        /// <summary>Something else, by its media type.</summary>
        Other,
    }

    /// <summary>A picture that code made.</summary>
    public sealed class Figure
    {
        internal Figure(string mediaType, byte[] bytes)
        {
            MediaType = mediaType;
            Bytes = bytes;
        }

        /// <summary><c>image/png</c>, <c>image/svg+xml</c>.</summary>
        public string MediaType { get; }

        /// <summary>The picture's own bytes.</summary>
        public byte[] Bytes { get; }
    }

    /// <summary>A value of code in every form it has.</summary>
    public sealed class RichResult
    {
        /// <summary>Forms of pictures, the sharpest first.</summary>
        private static readonly string[] FigureTypes = { "image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp" };

        private static readonly Regex TableTag = new Regex(@"<table[\s>]", RegexOptions.IgnoreCase);
        private static readonly Regex Row = new Regex(@"<tr[\s>].*?</tr>", RegexOptions.IgnoreCase | RegexOptions.Singleline);
        private static readonly Regex Cell = new Regex(@"<t[hd][\s>].*?</t[hd]>", RegexOptions.IgnoreCase | RegexOptions.Singleline);
        private static readonly Regex Tag = new Regex("<[^>]*>");

        internal RichResult(IReadOnlyDictionary<string, JsonElement> byType, long? count)
        {
            // What arrives as another JSON value is kept as its text.
            ByType = byType.ToDictionary(
                pair => pair.Key,
                pair => pair.Value.ValueKind == JsonValueKind.String ? pair.Value.GetString() : pair.Value.GetRawText());
            Count = count;
        }

        /// <summary>By media type: text as it is, images as base64.</summary>
        public IReadOnlyDictionary<string, string> ByType { get; }

        /// <summary>Which cell it is the value of; nothing for a display.</summary>
        public long? Count { get; }

        /// <summary>The richest form it has.</summary>
        public ResultKind Kind
        {
            get
            {
                if (FigureTypes.Any(ByType.ContainsKey)) return ResultKind.Figure;
                if (HasTable) return ResultKind.Table;
                return Text == null ? ResultKind.Other : ResultKind.Text;
            }
        }

        /// <summary>The value as plain text.</summary>
        public string? Text => Get("text/plain") ?? Get("text");

        /// <summary>The value as HTML.</summary>
        public string? Html => Get("text/html");

        /// <summary>The value as Markdown.</summary>
        public string? Markdown => Get("text/markdown");

        /// <summary>The value as JSON.</summary>
        public JsonElement? Json
        {
            get
            {
                if (!(Get("application/json") is string text)) return null;
                using var document = JsonDocument.Parse(text);
                return document.RootElement.Clone();
            }
        }

        /// <summary>The value as a picture.</summary>
        public Figure? Figure
        {
            get
            {
                var type = FigureTypes.FirstOrDefault(ByType.ContainsKey);
                if (type == null) return null;
                // SVG is text; whatever is not, comes as base64.
                return new Figure(type, type == "image/svg+xml" ? Encoding.UTF8.GetBytes(ByType[type]) : Convert.FromBase64String(ByType[type]));
            }
        }

        /// <summary>The value as a table, where its HTML has one, as data frames have: rows of cells, the head first.</summary>
        public IReadOnlyList<IReadOnlyList<string>>? Table
        {
            get
            {
                if (!HasTable) return null;
                return Row.Matches(Html).Select(row => Cell.Matches(row.Value).Select(cell => PlainText(cell.Value)).ToArray()).ToArray();
            }
        }

        private bool HasTable => Html != null && TableTag.IsMatch(Html);

        /// <summary>The value in this form.</summary>
        /// <param name="mediaType">Which.</param>
        public string? Get(string mediaType) => ByType.TryGetValue(mediaType, out var value) ? value : null;

        private static string PlainText(string html) => WebUtility.HtmlDecode(Tag.Replace(html, "")).Trim();
    }
}
