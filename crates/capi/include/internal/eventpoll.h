/*
 * A header that mTCP has among its sources and that programs in its tree include. There it declares
 * the inside of mTCP's epoll. Programs use the API of it, which is all that this one has.
 */
#ifndef EVENTPOLL_H
#define EVENTPOLL_H

#include "mtcp_api.h"
#include "mtcp_epoll.h"

#endif
