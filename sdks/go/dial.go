package osb

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

const (
	dialTime = 30 * time.Second
	// Connections that wait for the next request, in all and to one host. Several hundred sandboxes may
	// be used at once through one server.
	idleMax = 512
	// Shorter than servers keep an idle connection.
	idleTime = 55 * time.Second
)

// sharedTransport is what all clients send by, unless they have one of their own, so that their kept
// connections are shared and no client has to be closed.
var sharedTransport http.RoundTripper = newTransport()

// newTransport speaks HTTP/1.1: a stream has a connection of its own, and upgrades work.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSHandshakeTimeout: dialTime,
		MaxIdleConns:        idleMax,
		MaxIdleConnsPerHost: idleMax,
		IdleConnTimeout:     idleTime,
		// Files and events arrive as they are, and lengths are those of the content.
		DisableCompression: true,
		WriteBufferSize:    64 << 10,
		ReadBufferSize:     64 << 10,
	}
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTime}
	made, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if plain, ok := made.(*net.TCPConn); ok {
		return &checkedConn{plain}, nil
	}
	return made, nil
}

var errClosedIdle = errors.New("the other side closed the kept connection")

// checkedConn looks before each write whether the other side has closed the connection. Of a write that was
// not tried net/http knows that nothing left, and sends the request by another connection; without this,
// one that may not be sent twice would fail when it meets the end of a kept connection.
type checkedConn struct{ *net.TCPConn }

func (c *checkedConn) Write(piece []byte) (int, error) {
	if isClosed(c.TCPConn) {
		return 0, errClosedIdle
	}
	return c.TCPConn.Write(piece)
}
