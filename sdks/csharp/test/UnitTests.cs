// What needs no server.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Text;
using System.Text.Json;
using System.Text.RegularExpressions;
using System.Threading.Tasks;

namespace OpenSandbox.Test
{
    internal static class UnitTests
    {
        private static byte[] Bytes(string text) => Encoding.UTF8.GetBytes(text);

        private static List<string> Decoded(byte[] all, int size)
        {
            var decoder = new EventDecoder("test");
            var seen = new List<string>();
            void TakeAll()
            {
                while (decoder.TryTake(out var json)) seen.Add(JsonSerializer.Serialize(JsonSerializer.Deserialize<JsonElement>(json.Span)));
            }

            for (var at = 0; at < all.Length; at += size)
            {
                var count = Math.Min(size, all.Length - at);
                all.AsSpan(at, count).CopyTo(decoder.Space().Span);
                decoder.Came(count);
                TakeAll();
            }
            decoder.Finish();
            TakeAll();
            return seen;
        }

        [Test("event streams are read in every framing, in every pieces")]
        private static Task Framings()
        {
            var events = new[] { "{\"type\":\"stdout\",\"text\":\"a\\n\u2028ü\"}", "{\"text\":\"}\\n\\n{\\\"\"}", "{\"n\":3}" };
            var framings = new Dictionary<string, string>
            {
                ["bare"] = string.Concat(events.Select(json => $"{json}\n\n")),
                ["data"] = string.Concat(events.Select(json => $"data: {json}\n\n")),
                ["named"] = ":\n\n" + string.Concat(events.Select((json, id) => $"id: {id}\nevent: x\ndata:{json}\r\n\r\n")),
                ["lines"] = string.Concat(events.Select(json => $"{json}\n")),
                ["unended"] = string.Join("\n\n", events),
                ["split"] = string.Concat(events.Select(json => $"data: {json.Insert(1, "\ndata: ")}\n\n")),
            };
            var wanted = events.Select(json => JsonSerializer.Serialize(JsonSerializer.Deserialize<JsonElement>(json))).ToArray();
            foreach (var (name, text) in framings)
            {
                var all = Bytes(text);
                for (var size = 1; size <= all.Length; size++) Assert.Same(wanted, Decoded(all, size), $"{name} in pieces of {size}");
            }
            return Task.CompletedTask;
        }

        [Test("what is no event stream is refused, and so is an event without end")]
        private static Task NoEvents()
        {
            Assert.Throws<UnreadableException>(() => Decoded(Bytes("<html>\n"), 100));
            var decoder = new EventDecoder("test");
            Assert.Throws<UnreadableException>(() =>
            {
                for (var at = 0; at < 1100; at++)
                {
                    var space = decoder.Space();
                    space.Span.Fill((byte)'x');
                    decoder.Came(space.Length);
                    decoder.TryTake(out _);
                }
            });
            foreach (var wrong in new[] { "{broken", "[1]", "{\"type\":3}", "{\"seq\":\"x\"}", "{} {}" })
            {
                try
                {
                    WireEvent.Read(Bytes(wrong));
                }
                catch (Exception error) when (error is JsonException || error is InvalidOperationException || error is FormatException)
                {
                    continue;
                }
                throw new InvalidOperationException($"{wrong} was read");
            }
            return Task.CompletedTask;
        }

        private static TarInput[] Inputs(string name) => new[]
        {
            new TarInput("d") { Type = TarType.Directory },
            Moded(TarInput.Text("d/f", "text"), 0x180),
            TarInput.Text(name, new string('A', 1025)),
            new TarInput("l") { Type = TarType.Symlink, Target = name },
            TarInput.Text("e", ""),
        };

        private static TarInput Moded(TarInput input, int mode)
        {
            input.Mode = mode;
            return input;
        }

        [Test("archives are read as they were written")]
        private static async Task Archives()
        {
            var name = $"{new string('ü', 80)}/{new string('x', 140)}";
            var whole = new MemoryStream();
            await Tar.Pack(Inputs(name)).CopyToAsync(whole);
            Assert.Equal(0L, whole.Length % 512, "the length in blocks");
            foreach (var size in new[] { 1, 511, 512, 513, 100_000 })
            {
                var seen = new List<string>();
                await foreach (var entry in Tar.ReadAsync(new Pieces(whole.ToArray(), size)))
                {
                    var text = await new StreamReader(entry.Contents).ReadToEndAsync();
                    seen.Add($"{entry.Name} {entry.Type} {Convert.ToString(entry.Mode, 8)} {text} {entry.Target}");
                }
                Assert.Same(
                    new[] { "d Directory 755  ", "d/f File 600 text ", $"{name} File 644 {new string('A', 1025)} ", $"l Symlink 644  {name}", "e File 644  " },
                    seen, $"in pieces of {size}");
            }
            await Assert.ThrowsAsync<UnreadableException>(async () =>
            {
                await foreach (var entry in Tar.ReadAsync(new Pieces(whole.ToArray().Take(1100).ToArray(), 100))) Assert.True(entry.Name != "", "it has a name");
            });
            var short_ = new TarInput("short") { Size = 10, Open = () => new MemoryStream(new byte[3]) };
            await Assert.ThrowsAsync<IOException>(() => Tar.Pack(new[] { short_ }).CopyToAsync(Stream.Null));
        }

        [Test("an archive writes nothing outside of its directory")]
        private static async Task ArchivesStayInside()
        {
            using var place = new Place();
            Task<DownloadedDirectory> Into(params TarInput[] inputs) => Directories.UnpackAsync(Tar.Pack(inputs), place.At("in"), default);
            await Assert.ThrowsAsync<UnreadableException>(() => Into(TarInput.Text("../out", "x")));
            await Assert.ThrowsAsync<UnreadableException>(() => Into(TarInput.Text("/out", "x")));
            var links = new[] { "/etc/passwd", "../..", "a/../../..", ".." };
            var done = await Into(links.Select((target, at) => new TarInput($"l{at}") { Type = TarType.Symlink, Target = target }).ToArray());
            Assert.Equal(links.Length, done.Skipped.Count, "links that lead out");
            await Assert.ThrowsAsync<UnreadableException>(
                () => Into(new TarInput("s") { Type = TarType.Symlink, Target = "." }, TarInput.Text("s/f", "x")));
            Assert.True(Posix.MakeLink(place.At("out"), place.At("in/f")), "there is a link");
            await Into(TarInput.Text("f", "x"));
            Assert.True(!File.Exists(place.At("out")), "the link was not followed");
            Assert.Same(new[] { "in" }, Directory.GetFileSystemEntries(place.Path).Select(Path.GetFileName)!);
        }

        [Test("settings come from where they are said to")]
        private static Task Settings()
        {
            const string File = "# osb\n[connection]\ndomain = \"a:1\" # here\nrequest_timeout = 7.5\nuse_server_proxy = true\n[output]\nx = [1, \"2\"]\n";
            var read = ConnectionConfig.FromToml("f", File);
            Assert.Equal(("a:1", TimeSpan.FromSeconds(7.5), true), (read.Domain, read.RequestTimeout!.Value, read.UseServerProxy!.Value));
            foreach (var wrong in new[] { "connection = 3", "[connection]\ndomain = 3", "[connection\n", "[connection]\ndomain = a", "[connection]\nprotocol = 'ftp'", "a = 1\na = 2" })
                Assert.Throws<ConfigException>(() => ConnectionConfig.FromToml("f", wrong), wrong);
            var toml = Toml.Parse("a.b = {c = '\\x'}\n\"d e\" = \"\\u00e9\\n\"\nf = 1_000\n");
            Assert.Equal("\\x", ((Dictionary<string, object>)((Dictionary<string, object>)toml["a"])["b"])["c"]);
            Assert.Equal(("é\n", 1000.0), ((string)toml["d e"], (double)toml["f"]));
            ConnectionOptions From(params (string Name, string Value)[] pairs) =>
                ConnectionConfig.FromEnvironment(name => pairs.FirstOrDefault(pair => pair.Name == name).Value);
            var nothing = From(("OPEN_SANDBOX_API_KEY", " "), ("OPEN_SANDBOX_REQUEST_TIMEOUT", "soon"), ("OPEN_SANDBOX_USE_SERVER_PROXY", "perhaps"));
            Assert.True(nothing.ApiKey == null && nothing.RequestTimeout == null && nothing.UseServerProxy == null, "what says nothing is passed over");
            var some = From(("OPEN_SANDBOX_PROTOCOL", "HTTPS"), ("OPEN_SANDBOX_USE_SERVER_PROXY", "on"));
            Assert.Equal(("https", true), (some.Protocol, some.UseServerProxy!.Value));
            Assert.Throws<ConfigException>(() => From(("OPEN_SANDBOX_PROTOCOL", "ftp")));
            var config = new ConnectionConfig(new ConnectionOptions { Domain = "https://example.com/", ApiKey = "very-secret" });
            Assert.Equal(("https://example.com/v1", "https://example.com", "https"), (config.BaseUrl, config.RootUrl, config.Scheme));
            Assert.True(!JsonSerializer.Serialize(config).Contains("very-secret") && config.HasApiKey, "the key is not shown");
            foreach (var domain in new[] { "", "a b" })
                Assert.Throws<ConfigException>(() => _ = new ConnectionConfig(new ConnectionOptions { Domain = domain }).BaseUrl, domain);
            Assert.True(ConnectionConfig.DefaultFile!.EndsWith("config.toml"), "there is a file");
            Assert.Throws<ConfigException>(() => ConnectionConfig.FromFile("/no/such/file"));
            return Task.CompletedTask;
        }

        [Test("results have their forms")]
        private static Task Results()
        {
            RichResult Of(string json, long? count = null) => new RichResult(JsonSerializer.Deserialize<Dictionary<string, JsonElement>>(json), count);
            var svg = Of("{\"image/svg+xml\":\"<svg/>\",\"text/plain\":\"f\"}", 2);
            Assert.Equal((ResultKind.Figure, "<svg/>", 2L), (svg.Kind, Encoding.UTF8.GetString(svg.Figure!.Bytes), svg.Count!.Value));
            Assert.Equal(1, Of("{\"application/json\":{\"a\":1}}").Json!.Value.GetProperty("a").GetInt32());
            Assert.Equal(ResultKind.Other, Of("{\"text/latex\":\"x\"}").Kind);
            Assert.Equal("*x*", Of("{\"text/markdown\":\"*x*\"}").Markdown);
            Assert.Equal("<i>x</i>", Of("{\"text/html\":\"<i>x</i>\"}").Html);
            var table = Of("{\"text/html\":\"<table><tr><th>a</th></tr><tr><td>1 &lt; <b>2</b></td></tr></table>\"}").Table!;
            Assert.Same(new[] { "a", "1 < 2" }, table.SelectMany(row => row));
            return Task.CompletedTask;
        }

        [Test("ids and queries cannot leave their place in a URL")]
        private static Task Urls()
        {
            Assert.Equal("a%2F..%2Fb%3F%25%C3%BC~", Encoded.Segment("a/../b?%ü~"));
            foreach (var wrong in new[] { "", ".", ".." }) Assert.Throws<InvalidArgumentException>(() => Encoded.Segment(wrong));
            Assert.Equal("a=1&b=true&c=x%26y", Encoded.Query(("a", 1), ("b", true), ("none", null), ("c", "x&y")));
            return Task.CompletedTask;
        }

        [Test("what is asked for is what goes over the wire")]
        private static Task Requests()
        {
            var options = new CreateOptions
            {
                Name = "n", Metadata = new Dictionary<string, string> { ["a"] = "b" }, Resources = new Dictionary<string, string> { ["cpu"] = "2" },
                Volumes = new[] { Mount.Host("h", "/from", "/to", true) }, RenewOnAccess = TimeSpan.FromSeconds(90), Lifetime = TimeSpan.FromSeconds(61.5),
                CredentialProxy = false,
            };
            var json = JsonSerializer.Deserialize<JsonElement>(Json.Bytes(options.Request(SandboxSource.Image("x", new Wire.ImageAuth { Username = "u", Password = "p" }))));
            Assert.Equal(
                "{\"credentialProxy\":{\"enabled\":false},\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\"],\"extensions\":{\"access.renew.extend.seconds\":\"90\"},"
                + "\"image\":{\"auth\":{\"password\":\"p\",\"username\":\"u\"},\"uri\":\"x\"},\"metadata\":{\"name\":\"n\",\"a\":\"b\"},"
                + "\"resourceLimits\":{\"cpu\":\"2\",\"memory\":\"2Gi\"},\"timeout\":61,"
                + "\"volumes\":[{\"host\":{\"path\":\"/from\"},\"mountPath\":\"/to\",\"name\":\"h\",\"readOnly\":true}]}", json.GetRawText());
            var template = new CreateOptions { Lifetime = System.Threading.Timeout.InfiniteTimeSpan }.Request(SandboxSource.Template("t"));
            Assert.Equal("{\"templateId\":\"t\"}", Encoding.UTF8.GetString(Json.Bytes(template)), "a template says the rest by itself");
            return Task.CompletedTask;
        }

        [Test("every public member is used by a test, by the runner of the scenarios or by an example")]
        private static Task EveryMemberIsUsed()
        {
            var root = System.IO.Path.GetDirectoryName(Source())!;
            var texts = new[] { "test", "conformance", "examples", "bench" }.Select(name => System.IO.Path.Combine(root, "..", name)).Where(Directory.Exists)
                .SelectMany(folder => Directory.GetFiles(folder, "*.cs", SearchOption.AllDirectories)).Where(file => !file.Contains("/obj/"));
            var words = new HashSet<string>(texts.SelectMany(file => Regex.Matches(File.ReadAllText(file), @"\w+").Select(found => found.Value)));
            var missing = typeof(Sandbox).Assembly.GetExportedTypes().Where(type => type.Namespace == "OpenSandbox")
                .SelectMany(type => type.GetMembers(BindingFlags.Public | BindingFlags.Instance | BindingFlags.Static | BindingFlags.DeclaredOnly)
                    .Where(member => member is PropertyInfo || (member is MethodInfo method && !method.IsSpecialName))
                    .Where(member => !words.Contains(member.Name)).Select(member => $"{type.Name}.{member.Name}"));
            // What `await foreach` calls stands nowhere.
            Assert.Same(Array.Empty<string>(), missing.Where(name => !name.EndsWith(".GetAsyncEnumerator")));
            return Task.CompletedTask;
        }

        private static string Source([CallerFilePath] string path = "") => path;
    }

    /// <summary>A directory of its own, which is gone afterwards.</summary>
    internal sealed class Place : IDisposable
    {
        internal Place()
        {
            Path = System.IO.Path.Combine(System.IO.Path.GetTempPath(), $"osb-csharp-{Guid.NewGuid():N}");
            Directory.CreateDirectory(Path);
        }

        internal string Path { get; }

        public void Dispose() => Directory.Delete(Path, true);

        internal string At(string name) => System.IO.Path.Combine(Path, name);
    }

    /// <summary>Bytes that come in pieces of this size.</summary>
    internal sealed class Pieces : ReadOnlyStream
    {
        private readonly byte[] _all;
        private readonly int _size;
        private int _at;

        internal Pieces(byte[] all, int size)
        {
            _all = all;
            _size = size;
        }

        public override ValueTask<int> ReadAsync(Memory<byte> buffer, System.Threading.CancellationToken cancellationToken = default)
        {
            var count = Math.Min(Math.Min(_size, buffer.Length), _all.Length - _at);
            _all.AsMemory(_at, count).CopyTo(buffer);
            _at += count;
            return new ValueTask<int>(count);
        }
    }
}
