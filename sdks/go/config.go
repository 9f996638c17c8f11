package osb

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Variables of the environment that [LoadConfig] reads.
const (
	// EnvAPIKey carries the API key.
	EnvAPIKey = "OPEN_SANDBOX_API_KEY"
	// EnvDomain says where the server is.
	EnvDomain = "OPEN_SANDBOX_DOMAIN"
	// EnvProtocol says http or https.
	EnvProtocol = "OPEN_SANDBOX_PROTOCOL"
	// EnvRequestTimeout says how many seconds an answer may take.
	EnvRequestTimeout = "OPEN_SANDBOX_REQUEST_TIMEOUT"
	// EnvUseServerProxy says whether sandboxes are reached through the server.
	EnvUseServerProxy = "OPEN_SANDBOX_USE_SERVER_PROXY"
)

// What holds where nothing was said, as in the other SDKs.
const (
	// DefaultDomain is where a server listens.
	DefaultDomain = "localhost:8080"
	// DefaultRequestTimeout is how long an answer may take.
	DefaultRequestTimeout = 30 * time.Second
)

// Version is the version of this package.
const Version = "0.1.0"

// RetryPolicy says when a request is sent again. Only requests that change nothing, or that did
// certainly not arrive, are.
type RetryPolicy struct {
	// Attempts after the first; 0 is none.
	Attempts int
	// FirstDelay is the shortest wait between two attempts.
	FirstDelay time.Duration
	// LongestDelay is the longest wait between two attempts, also when the server asks for more.
	LongestDelay time.Duration
}

// DefaultRetry is three more attempts, half a second to half a minute apart, as in the other SDKs.
var DefaultRetry = RetryPolicy{Attempts: 3, FirstDelay: 500 * time.Millisecond, LongestDelay: 30 * time.Second}

// Config says where the server is and how to speak to it. What is zero has its default; [LoadConfig] asks
// the environment and the file of the command line.
type Config struct {
	// Domain is host[:port], or with a scheme, which then decides.
	Domain string
	// APIKey is the key of the server's API. It is never printed with the rest.
	APIKey string `json:"-"`
	// Protocol is http or https, unless the domain says so.
	Protocol string
	// RequestTimeout is how long an answer may take. Streams last as long as they last.
	RequestTimeout time.Duration
	// UseServerProxy says whether sandboxes are reached through the server, for where they cannot be
	// reached straight.
	UseServerProxy bool
	// Headers are sent with every request.
	Headers map[string]string `json:"-"`
	// UserAgent is how the program calls itself.
	UserAgent string
	// Retry says when a request is sent again; nil is [DefaultRetry].
	Retry *RetryPolicy
	// Transport sends requests; nil is one that all clients of the process share.
	Transport http.RoundTripper `json:"-"`
}

// String leaves the API key and the headers out, so that no log has them.
func (c Config) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// GoString is the same.
func (c Config) GoString() string { return "osb.Config" + c.String() }

// LoadConfig is the settings of the environment over those of the command line's file over the defaults. A
// file that is not there is no error, one that cannot be read is.
func LoadConfig() (Config, error) {
	var config Config
	if path := DefaultConfigFile(); path != "" {
		read, err := ReadConfig(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return config, err
		}
		config = read
	}
	err := config.readEnvironment(os.Getenv)
	return config, err
}

// DefaultConfigFile is where the command line keeps its settings: ~/.opensandbox/config.toml. Without a home
// it is empty.
func DefaultConfigFile() string {
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		return ""
	}
	return filepath.Join(home, ".opensandbox", "config.toml")
}

// ReadConfig is the settings of a file over the defaults.
func ReadConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, configError(path, err.Error(), err)
	}
	return parseConfig(path, string(text))
}

// parseConfig reads the part of the file that is about the connection; the rest is for the command line.
func parseConfig(path, text string) (Config, error) {
	var config Config
	file, err := parseTOML(text)
	if err != nil {
		return config, configError(path, err.Error(), err)
	}
	section, ok := file["connection"]
	if !ok {
		return config, nil
	}
	connection, ok := section.(map[string]any)
	if !ok {
		return config, configError(path, "connection is not a table", nil)
	}
	wrong := func(name, kind string) error {
		return configError(path, fmt.Sprintf("connection.%s is not a %s", name, kind), nil)
	}
	for name, value := range connection {
		text, isText := value.(string)
		switch name {
		case "api_key", "domain", "protocol":
			if !isText {
				return config, wrong(name, "string")
			}
		}
		switch name {
		case "api_key":
			config.APIKey = text
		case "domain":
			config.Domain = text
		case "protocol":
			if config.Protocol, err = protocolOf(text, path); err != nil {
				return config, err
			}
		case "request_timeout":
			seconds, ok := value.(float64)
			if !ok {
				return config, wrong(name, "number")
			}
			config.RequestTimeout = secondsOf(seconds)
		case "use_server_proxy":
			if config.UseServerProxy, ok = value.(bool); !ok {
				return config, wrong(name, "boolean")
			}
		}
	}
	return config, nil
}

// readEnvironment puts what the environment says over what is there.
func (c *Config) readEnvironment(lookUp func(string) string) error {
	// An empty variable is as good as none, as in the other SDKs.
	value := func(name string) string { return strings.TrimSpace(lookUp(name)) }
	if key := value(EnvAPIKey); key != "" {
		c.APIKey = key
	}
	if domain := value(EnvDomain); domain != "" {
		c.Domain = domain
	}
	if text := value(EnvProtocol); text != "" {
		protocol, err := protocolOf(text, EnvProtocol)
		if err != nil {
			return err
		}
		c.Protocol = protocol
	}
	// What is not a number or not yes or no is passed over, as in the command line.
	if seconds, err := strconv.ParseFloat(value(EnvRequestTimeout), 64); err == nil && seconds > 0 {
		c.RequestTimeout = secondsOf(seconds)
	}
	switch strings.ToLower(value(EnvUseServerProxy)) {
	case "1", "true", "yes", "on":
		c.UseServerProxy = true
	case "0", "false", "no", "off":
		c.UseServerProxy = false
	}
	return nil
}

// secondsOf is a duration that is at most the longest there is; nothing for what is no time.
func secondsOf(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	if seconds >= time.Duration(1<<63-1).Seconds() {
		return 1<<63 - 1
	}
	return time.Duration(seconds * float64(time.Second))
}

func protocolOf(text, origin string) (string, error) {
	switch lower := strings.ToLower(text); lower {
	case "http", "https":
		return lower, nil
	}
	return "", configError(origin, fmt.Sprintf("%q is neither http nor https", text), nil)
}

// complete is the settings with defaults for what is missing, checked.
func (c Config) complete() (Config, error) {
	if c.Domain == "" {
		c.Domain = DefaultDomain
	}
	c.Domain = strings.TrimSpace(c.Domain)
	if c.Protocol == "" {
		c.Protocol = "http"
	}
	var err error
	if c.Protocol, err = protocolOf(c.Protocol, "Protocol"); err != nil {
		return c, err
	}
	if scheme, _, ok := strings.Cut(c.Domain, "://"); ok && (scheme == "http" || scheme == "https") {
		c.Protocol = scheme
	} else {
		c.Domain = c.Protocol + "://" + c.Domain
	}
	c.Domain = strings.TrimRight(c.Domain, "/")
	if at, err := url.Parse(c.Domain); err != nil || at.Host == "" || strings.ContainsAny(c.Domain, " \t\r\n") {
		return c, configError("Domain", fmt.Sprintf("%q is not host[:port]", c.Domain), err)
	}
	if c.RequestTimeout < 0 {
		return c, configError("RequestTimeout", fmt.Sprintf("%s is not a time above 0", c.RequestTimeout), nil)
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.UserAgent == "" {
		c.UserAgent = "opensandbox-go/" + Version
	}
	if c.Retry == nil {
		c.Retry = &DefaultRetry
	}
	if c.Transport == nil {
		c.Transport = sharedTransport
	}
	return c, c.checkHeaders()
}

// BaseURL is where requests to the server go: https://example.com/v1.
func (c Config) BaseURL() (string, error) {
	complete, err := c.complete()
	return complete.Domain + "/v1", err
}

// checkHeaders refuses what would begin another header: a name is a token and a value has no line end
// (RFC 9110, section 5).
func (c Config) checkHeaders() error {
	values := map[string]string{"APIKey": c.APIKey, "UserAgent": c.UserAgent}
	for name, value := range c.Headers {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }) {
			return configError("Headers", fmt.Sprintf("%q is no name of a header", name), nil)
		}
		values["Headers."+name] = value
	}
	for origin, value := range values {
		isWrong := func(r rune) bool { return r != '\t' && (r < ' ' || r == 0x7f) }
		if strings.ContainsFunc(value, isWrong) {
			// Not repeated in the error: any of them may be a credential.
			return configError(origin, "it has a character that no header can carry", nil)
		}
	}
	return nil
}

func isTokenRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
