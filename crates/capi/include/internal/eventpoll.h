/*
 * mTCP's sources have a header of this name, which programs in its tree include. There it declares
 * the internals of mTCP's epoll. Programs only use the API, which is all that this header
 * declares.
 */
#ifndef EVENTPOLL_H
#define EVENTPOLL_H

#include "mtcp_api.h"
#include "mtcp_epoll.h"

#endif
