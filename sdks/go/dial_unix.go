//go:build unix

package osb

import (
	"net"
	"syscall"
)

// isClosed says whether the end of the stream has arrived, by looking at what is next to read and leaving
// it (recv(2), MSG_PEEK).
func isClosed(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	closed := false
	// Control does not wait for the reader that net/http has on each connection, as Read would.
	err = raw.Control(func(fd uintptr) {
		var next [1]byte
		count, _, err := syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = err == nil && count == 0 || err == syscall.ECONNRESET
	})
	return closed || err != nil
}
